"""Text: words read, lines found, upside-down words and turned pages noticed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import numpy as np

from tests.models import real_models
from tests.real.drawing import (
    CALIBRATION_WORDS,
    TEST_WORDS,
    as_rgb,
    made_up_words,
    padded,
    page,
    word,
)
from tests.real.task import Feed, Figure, Run, Task

COMPARED_WORDS = 300
CAPTCHAS = ("3xk7", "9pmw", "4ht2", "bn58", "d6rf", "7yqa", "w2vc", "8gjz", "k5nt", "2hme")


def decoded(scores: np.ndarray, alphabet: Sequence[str]) -> str:
    """The best path of CTC scores [steps, letters]: repeats are one letter, 0 is none."""
    best = scores.argmax(axis=-1)
    kept = [i for i, before in zip(best, [-1, *best[:-1]], strict=True) if i not in (0, before)]
    return "".join(alphabet[i] for i in kept)


def _alphabet(name: str) -> list[str]:
    found = {p.key: p.value for p in real_models.load(name).metadata_props}["character"]
    return ["", *found.splitlines(), " "]


def reader(name: str, lost: int = 2) -> Task:
    """A reader of single words of 48 pixels."""

    def feed(text: str, font: int) -> Feed:
        return {"x": as_rgb(word(text, 48, font))}

    def right(run: Run) -> list[float]:
        letters = _alphabet(name)
        made = [next(iter(run(feed(t, i)).values()))[0] for i, t in enumerate(TEST_WORDS)]
        return [decoded(m, letters).strip() == t for m, t in zip(made, TEST_WORDS, strict=True)]

    def samples(_: Run) -> list[Feed]:
        return [feed(t, i) for i, t in enumerate(CALIBRATION_WORDS)]

    # A word in seven has all of the noise: a letter that is read differently, or nearly so. Of
    # 64 words, chance made one session 4 dB better on one machine and 2 dB worse on another.
    others = [feed(t, i) for i, t in enumerate([*TEST_WORDS, *made_up_words(COMPARED_WORDS)])]
    return Task("20 drawn words", samples, Figure("words read", right, lost), others)


def captcha_reader() -> Task:
    """A reader of grey letters of 64 pixels."""
    texts = [*CAPTCHAS, *(w.lower() for w in TEST_WORDS if w.isalpha())][:30]

    def feed(text: str, font: int) -> Feed:
        return {"input1": (word(text, 64, font) / np.float32(255))[None, None].astype(np.float32)}

    def right(run: Run) -> list[float]:
        letters = _captcha_alphabet()
        made = [next(iter(run(feed(t, i)).values())) for i, t in enumerate(texts)]
        flat = [m.reshape(-1, m.shape[-1]) for m in made]
        return [decoded(m, letters) == t for m, t in zip(flat, texts, strict=True)]

    def samples(_: Run) -> list[Feed]:
        return [feed(t.lower(), i) for i, t in enumerate(CALIBRATION_WORDS)]

    return Task("20 drawn words", samples, Figure("words read", right, 1))


def _captcha_alphabet() -> list[str]:
    file = real_models.member("ddddocr==1.6.1", "ddddocr/charsets.py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHARSET_BETA":
            letters: list[str] = ast.literal_eval(node.value)
            return letters
    raise ValueError("the alphabet is not where it was")


def upside_down() -> Task:
    """Words upright and turned by 180 degrees."""

    def feed(text: str, font: int, turned: bool) -> Feed:
        drawn = padded(word(text, 48, font), 192)
        return {"x": as_rgb(drawn[::-1, ::-1] if turned else drawn)}

    def right(run: Run) -> list[float]:
        return [
            int(next(iter(run(feed(t, i, turned)).values())).argmax()) == turned
            for i, t in enumerate(TEST_WORDS)
            for turned in (False, True)
        ]

    def samples(_: Run) -> list[Feed]:
        return [feed(t, i, bool(i % 2)) for i, t in enumerate(CALIBRATION_WORDS)]

    return Task("20 drawn words", samples, Figure("words seen as upright or not", right, 2))


def turned_page() -> Task:
    """Pages turned by 0, 90, 180 and 270 degrees."""

    def feed(seed: int, quarter: int) -> Feed:
        drawn, _ = page(224, 224, seed)
        return {"x": as_rgb(np.rot90(drawn, -quarter), 0.45, 0.225)}

    def right(run: Run) -> list[float]:
        return [
            int(next(iter(run(feed(seed, quarter)).values())).argmax()) == quarter
            for seed in range(100, 110)
            for quarter in range(4)
        ]

    def samples(_: Run) -> list[Feed]:
        return [feed(seed, seed % 4) for seed in range(20)]

    return Task("20 drawn pages", samples, Figure("turned pages seen", right, 1))


def text_finder(size: int = 320) -> Task:
    """Words found on a page: most of the word's middle line is marked as text."""

    def right(run: Run) -> list[float]:
        found: list[float] = []
        for seed in range(100, 104):
            drawn, boxes = page(size, size, seed, 24)
            marked = next(iter(run({"x": as_rgb(drawn)}).values()))[0, 0] > 0.3
            for left, top, right, bottom in boxes:
                middle = marked[top + (bottom - top) // 2 + 2, left:right]
                found.append(bool(middle.mean() > 0.5))
            # What is marked although no word is near counts as one wrong answer.
            near = np.zeros_like(marked)
            for left, top, right, bottom in boxes:
                near[max(top - 12, 0) : bottom + 18, max(left - 12, 0) : right + 12] = True
            found.append(bool((marked & ~near).mean() < 0.01))
        return found

    def samples(_: Run) -> list[Feed]:
        return [{"x": as_rgb(page(size, size, seed, 24)[0])} for seed in range(8)]

    return Task("8 drawn pages", samples, Figure("words found", right, 2))


def pages_for(name: str, height: int, width: int, mean: float, deviation: float) -> Task:
    """Drawn pages for a network without a figure."""

    def samples(_: Run) -> list[Feed]:
        return [{name: as_rgb(page(height, width, seed)[0], mean, deviation)} for seed in range(6)]

    return Task("6 drawn pages", samples)


TASKS: dict[str, Callable[[], Task]] = {
    "ocr-rec": lambda: reader("ocr-rec"),
    "ocr6-rec": lambda: reader("ocr6-rec"),
    "ocr-cls": upside_down,
    "ocr-det": text_finder,
    "ocr6-det": text_finder,
    "orientation": turned_page,
    "captcha": captcha_reader,
    "captcha-det": lambda: pages_for("images", 416, 416, 0.0, 1 / 255),
}
