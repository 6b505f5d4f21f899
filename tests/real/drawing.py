"""Words and pages drawn with Pillow, in the fonts of DejaVu or Liberation."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np

from tests.real.task import Missing

_TEXT = """
Invoice Berlin 2024 total amount Hamburg street number order delivery customer price garden
window yellow seven planet kitchen summer bridge history market doctor engine family silver
purple camera letter mountain orange butter winter pencil spring travel banana coffee
silence harbor 17:45 98.60 ABC-1207 quantum zebra Oxford jumping keyboard velvet Norway
mirror turtle guitar lemon 3,141 forest island rocket tunnel wizard basket candle dragon
feather goblet hammer jacket kettle ladder magnet needle
"""
WORDS = _TEXT.split()
TEST_WORDS, CALIBRATION_WORDS = WORDS[:50], WORDS[50:]

_SYLLABLES = [
    *("ta", "mo", "lin", "ker", "vis", "pro", "den", "ghu"),
    *("fa", "stel", "bri", "con", "ram", "ex", "our", "ity"),
]


def made_up_words(count: int) -> list[str]:
    """Words of two or three syllables, the same in every run; every third is a name."""
    random = np.random.default_rng(0)
    made = ["".join(random.choice(_SYLLABLES, random.integers(2, 4))) for _ in range(count)]
    return [each.capitalize() if at % 3 == 0 else each for at, each in enumerate(made)]


@functools.cache
def fonts() -> tuple[Path, ...]:
    """Font files that draw Latin letters."""
    folders = [
        Path("/usr/share/fonts/truetype/dejavu"),
        Path("/usr/share/fonts/truetype/liberation"),
    ]
    found = importlib.util.find_spec("matplotlib")
    if found is not None and found.origin is not None:
        folders.append(Path(found.origin).parent / "mpl-data" / "fonts" / "ttf")
    names = (
        "DejaVuSans.ttf",
        "DejaVuSerif.ttf",
        "DejaVuSans-Bold.ttf",
        "LiberationSans-Regular.ttf",
    )
    files = [folder / name for name in names for folder in folders if (folder / name).is_file()]
    if not files:
        raise Missing("no DejaVu or Liberation font is installed")
    if importlib.util.find_spec("PIL") is None:
        raise Missing("Pillow is not installed")
    return tuple(dict.fromkeys(files))


def word(text: str, height: int, font: int = 0) -> np.ndarray:
    """Dark letters on a light ground, uint8 [height, width]."""
    from PIL import Image, ImageDraw, ImageFont

    drawn = ImageFont.truetype(str(fonts()[font % len(fonts())]), int(height * 0.66))
    width = int(drawn.getlength(text)) + height // 2
    image = Image.new("L", (width, height), 245)
    ImageDraw.Draw(image).text((height // 4, height // 2), text, 20, drawn, anchor="lm")
    return np.asarray(image)


Box = tuple[int, int, int, int]


def page(height: int, width: int, seed: int, size: int = 0) -> tuple[np.ndarray, list[Box]]:
    """Lines of words, uint8 [height, width], and each word's box (left, top, right, bottom)."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(seed)
    size = size or max(height // 14, 12)
    font = ImageFont.truetype(str(fonts()[seed % len(fonts())]), size)
    image = Image.new("L", (width, height), 250)
    draw = ImageDraw.Draw(image)
    boxes: list[Box] = []
    top = size
    while top + 2 * size < height:
        left = size
        while True:
            text = str(rng.choice(WORDS))
            right = left + int(font.getlength(text))
            if right + size > width:
                break
            draw.text((left, top), text, 15, font)
            boxes.append((left, top, right, top + size))
            left = right + size
        top += 2 * size
    return np.asarray(image), boxes


def as_rgb(gray: np.ndarray, mean: float = 0.5, deviation: float = 0.5) -> np.ndarray:
    """A picture as float32 [1, 3, height, width], normalised."""
    planes = np.repeat(gray[None, None].astype(np.float32) / 255, 3, axis=1)
    return np.ascontiguousarray((planes - mean) / deviation, np.float32)


def padded(gray: np.ndarray, width: int) -> np.ndarray:
    """The picture cut or widened to `width`."""
    cut = gray[:, :width]
    return np.pad(cut, ((0, 0), (0, width - cut.shape[1])), constant_values=245)
