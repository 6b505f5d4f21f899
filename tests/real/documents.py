"""Documents drawn with Pillow: round seals, pages with titles, paragraphs, tables and pictures."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from tests.real.drawing import WORDS, Box, fonts

if TYPE_CHECKING:
    from PIL import Image, ImageFont

_RED = (205, 30, 40)


def seal_page(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A page with a seal, uint8 [size, size, 3], and where the seal's curved text is, as a mask."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (size, size), (250, 250, 248))
    draw = ImageDraw.Draw(image)
    small = _font(seed, size // 26)
    for top in range(size // 20, size - size // 16, size // 13):
        draw.text((size // 20, top), _line(rng, small, size - size // 10), (60, 60, 60), small)
    radius = int(size * rng.uniform(0.3, 0.38))
    wide, high = radius, int(radius * rng.choice([1.0, 1.0, 0.8]))
    x, y = (int(rng.integers(radius + 4, size - radius - 4)) for _ in range(2))
    draw.ellipse((x - wide, y - high, x + wide, y + high), None, _RED, max(size // 90, 2))
    star = [
        (x + r * math.sin(math.pi * k / 5), y - r * math.cos(math.pi * k / 5))
        for k in range(10)
        for r in [(0.28 if k % 2 == 0 else 0.11) * high]
    ]
    draw.polygon(star, _RED)
    text = " ".join(str(w) for w in rng.choice(WORDS, 3)).upper()
    height = int(0.24 * radius)
    mask = _along_an_arc(image, text, (x, y), (0.76 * wide, 0.76 * high), _font(seed, height))
    return np.asarray(image), mask


def _along_an_arc(
    image: Image.Image,
    text: str,
    middle: tuple[int, int],
    radii: tuple[float, float],
    font: ImageFont.FreeTypeFont,
) -> np.ndarray:
    """Write around the upper side of an ellipse; the mask of all letters, without gaps."""
    from PIL import Image, ImageDraw

    mask = Image.new("L", image.size)
    widths = [font.getlength(letter) for letter in text]
    # Letters as far apart as they are wide, or closer if they would go around more than 5/6.
    turn = min(sum(widths) / min(radii), math.pi * 5 / 3)
    angle = -turn / 2
    side = int(2.4 * font.size)
    for letter, width in zip(text, widths, strict=True):
        step = turn * width / sum(widths)
        angle += step / 2
        at = (middle[0] + radii[0] * math.sin(angle), middle[1] - radii[1] * math.cos(angle))
        for target, colour, whole in ((image, _RED, False), (mask, 255, True)):
            tile = Image.new("L", (side, side))
            draw = ImageDraw.Draw(tile)
            if whole:
                half = (0.6 * width, 0.5 * font.size)
                low, high = ((side / 2 + s * half[0], side / 2 + s * half[1]) for s in (-1, 1))
                draw.rectangle((*low, *high), 255)
            else:
                draw.text((side // 2, side // 2), letter, 255, font, anchor="mm")
            turned = tile.rotate(-math.degrees(angle), Image.Resampling.BICUBIC)
            corner = (round(at[0] - side / 2), round(at[1] - side / 2))
            target.paste(colour, corner, turned)
        angle += step / 2
    found: np.ndarray = np.asarray(mask) > 127
    return found


def _font(seed: int, size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.truetype(str(fonts()[seed % len(fonts())]), max(size, 8))


def _line(rng: np.random.Generator, font: ImageFont.FreeTypeFont, width: float) -> str:
    """As many words as fit into a line."""
    text = str(rng.choice(WORDS))
    while font.getlength(longer := f"{text} {rng.choice(WORDS)}") <= width:
        text = longer
    return text


Block = tuple[str, Box]
"""What a part of a page is, and where."""


def document(height: int, width: int, seed: int) -> tuple[np.ndarray, list[Block]]:
    """A page of an article, uint8 [height, width, 3], and its parts from top to bottom."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (width, height), (255, 255, 255))
    draw = ImageDraw.Draw(image)
    margin, size = width // 12, height // 66
    inside, blocks = width - 2 * margin, list[Block]()
    top = margin
    for kind in ("title", "text", str(rng.choice(["table", "figure"])), "title", "text", "text"):
        if kind == "title":
            font = _font(2, int(1.6 * size))
            text = _line(rng, font, inside * rng.uniform(0.4, 0.8))
            draw.text((margin, top), text, (10, 10, 10), font)
            right, bottom = margin + int(font.getlength(text)), top + 2 * size
        elif kind == "text":
            font, rows = _font(seed, size), int(rng.integers(5, 9))
            rows = min(rows, (height - margin // 2 - top) // int(1.5 * size))
            for row in range(rows):
                wide = inside * (0.5 if row == rows - 1 else 1.0)
                text = _line(rng, font, wide)
                draw.text((margin, top + int(1.5 * size) * row), text, (20, 20, 20), font)
            right, bottom = margin + inside, top + int(1.5 * size) * rows
        elif kind == "table":
            cells = (int(rng.integers(4, 8)), int(rng.integers(3, 6)))
            right, bottom = margin + inside, top + int(2.4 * size) * cells[0]
            _grid(image, (margin, top, right, bottom), cells, rng, size)
        else:
            right, bottom = margin + inside, top + int(inside * rng.uniform(0.35, 0.5))
            _bars(image, (margin, top, right, bottom), rng)
        blocks.append((kind, (margin, top, right, bottom)))
        top = bottom + int(2.2 * size)
    return np.asarray(image), blocks


def table(size: int, seed: int) -> tuple[np.ndarray, tuple[int, int]]:
    """A table at the top of a picture, uint8 [size, size, 3], and its rows and columns."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (size, size), (255, 255, 255))
    cells = (int(rng.integers(3, 9)), int(rng.integers(2, 6)))
    _grid(image, (6, 6, size - 7, 6 + size // 12 * cells[0]), cells, rng, size // 32)
    return np.asarray(image), cells


def _grid(
    image: Image.Image, box: Box, cells: tuple[int, int], rng: np.random.Generator, size: int
) -> None:
    """A table with lines around rows x columns of words."""
    from PIL import ImageDraw

    draw, font = ImageDraw.Draw(image), _font(0, size)
    rows, columns = cells
    left, top, right, bottom = box
    ys = np.linspace(top, bottom, rows + 1).astype(int)
    xs = np.linspace(left, right, columns + 1).astype(int)
    for y in ys:
        draw.line((left, y, right, y), (0, 0, 0), 1)
    for x in xs:
        draw.line((x, top, x, bottom), (0, 0, 0), 1)
    for y, below in itertools.pairwise(ys):
        for x, beside in itertools.pairwise(xs):
            text = _line(rng, font, 0.0)[: max(int((beside - x) / size), 1)]
            draw.text((x + size // 2, (y + below) // 2), text, (15, 15, 15), font, anchor="lm")


def _bars(image: Image.Image, box: Box, rng: np.random.Generator) -> None:
    """A chart of coloured bars with axes."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(image)
    left, top, right, bottom = box
    draw.rectangle(box, (235, 238, 245), (90, 90, 90))
    count = int(rng.integers(6, 12))
    step = (right - left) / (count + 1)
    for k in range(count):
        x = left + step * (k + 0.6)
        y = bottom - 6 - (bottom - top - 12) * rng.uniform(0.2, 1.0)
        colour = tuple(int(v) for v in rng.integers(30, 220, 3))
        draw.rectangle((x, y, x + 0.7 * step, bottom - 6), colour)
