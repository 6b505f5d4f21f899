"""Documents: the text of seals found, the parts of pages told, the cells of tables counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.models import real_models
from tests.real.documents import document, seal_page, table
from tests.real.drawing import Box
from tests.real.task import Feed, Figure, Run, Task

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STRIDES = (8, 16, 32, 64)
SURE, SAME = 0.4, 0.5
"""Least score of a part, as the network's own package takes it, and least overlap with it."""


def normalised(picture: np.ndarray) -> np.ndarray:
    """A picture [height, width, 3] as float32 [1, 3, height, width]."""
    planes = (picture.astype(np.float64) / 255 - MEAN) / DEVIATION
    return np.ascontiguousarray(planes.transpose(2, 0, 1)[None], np.float32)


def seal_finder(size: int = 640) -> Task:
    """The curved text of seals: half of it marked, and most of what is marked is such text."""

    def feed(picture: np.ndarray) -> Feed:
        return {"x": normalised(picture[..., ::-1])}  # blue comes first

    def right(run: Run) -> list[float]:
        found: list[float] = []
        for seed in range(100, 110):
            picture, text = seal_page(size, seed)
            marked = next(iter(run(feed(picture)).values()))[0, 0] > 0.2
            found.append(bool(marked[text].mean() > 0.5 and text[marked].mean() > 0.5))
        return found

    def samples(_: Run) -> list[Feed]:
        return [feed(seal_page(size, seed)[0]) for seed in range(8)]

    return Task("8 drawn pages with seals", samples, Figure("seals found", right))


def overlap(a: np.ndarray, b: Box) -> np.ndarray:
    """The area that boxes [n, 4] share with one, divided by that of both together."""
    other = np.asarray(b, np.float64)
    low, high = np.maximum(a[:, :2], other[:2]), np.minimum(a[:, 2:], other[2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    areas = np.clip(a[:, 2:] - a[:, :2], 0, None).prod(axis=1) + (other[2:] - other[:2]).prod()
    found: np.ndarray = shared / (areas - shared)
    return found


def best_boxes(outputs: list[np.ndarray], height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores [n, classes] and boxes [n, 4] at every place of every scale.

    The outputs are the scores of each scale, then the distributions over the distances 0 .. 7 to
    the left, top, right and bottom, in strides.
    """
    scales = len(outputs) // 2
    boxes = []
    for stride, shown in zip(STRIDES, outputs[scales:], strict=True):
        rows, columns = -(-height // stride), -(-width // stride)
        y, x = (np.mgrid[:rows, :columns].reshape(2, -1) + 0.5) * stride
        parts = np.exp(shown[0].reshape(-1, 4, 8).astype(np.float64))
        away = stride * (parts * np.arange(8)).sum(axis=2) / parts.sum(axis=2)
        boxes.append(np.stack([x, y, x, y], axis=1) + away * (-1, -1, 1, 1))
    return np.concatenate([each[0] for each in outputs[:scales]]), np.concatenate(boxes)


def layout(height: int = 800, width: int = 608) -> Task:
    """Parts of pages: the surest of the boxes that lie there is sure enough, and of the right kind.

    A title may be taken for the head of the page, which it is on the drawn ones.
    """

    def feed(picture: np.ndarray) -> Feed:
        return {"image": normalised(picture)}

    def right(run: Run) -> list[float]:
        names = {p.key: p.value for p in real_models.load("layout").metadata_props}
        kinds = names["character"].splitlines()
        found: list[float] = []
        for seed in range(100, 108):
            picture, blocks = document(height, width, seed)
            made = list(run(feed(picture)).values())
            scores, boxes = best_boxes(made, height, width)
            for kind, box in blocks:
                there = scores[overlap(boxes, box) > SAME]
                best = there.max(axis=0) if len(there) else np.zeros(len(kinds))
                told = kinds[int(best.argmax())] if best.max() > SURE else ""
                found.append(told == kind or (kind == "title" and told == "header"))
        return found

    def samples(_: Run) -> list[Feed]:
        return [feed(document(height, width, seed)[0]) for seed in range(8)]

    return Task("8 drawn documents", samples, Figure("parts of pages told", right, 1))


def table_reader(size: int = 488) -> Task:
    """The rows and cells of drawn tables."""

    def right(run: Run) -> list[float]:
        names = {p.key: p.value for p in real_models.load("table").metadata_props}
        # An empty cell is one sign; the first and the last sign are start and end.
        cell = "<td></td>"
        signs = [*(c for c in names["character"].splitlines() if c != "<td>"), cell]
        found: list[float] = []
        for seed in range(100, 112):
            picture, (rows, columns) = table(size, seed)
            scores = list(run({"x": normalised(picture)}).values())[1][0]
            told = ["", *signs, ""]
            read = [told[i] for i in scores.argmax(axis=-1)]
            found.append(read.count("<tr>") == rows and read.count(cell) == rows * columns)
        return found

    def samples(_: Run) -> list[Feed]:
        return [{"x": normalised(table(size, seed)[0])} for seed in range(8)]

    return Task("8 drawn tables", samples, Figure("tables read", right, 1))


TASKS: dict[str, Callable[[], Task]] = {
    "ocr-seal-det": seal_finder,
    "layout": layout,
    "table": table_reader,
}
