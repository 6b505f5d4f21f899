"""Boxes read from distributions, and drawn documents that are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.real import documents, drawing
from tests.real.document_tasks import best_boxes, normalised, overlap
from tests.real.task import Missing


@pytest.fixture(autouse=True)
def _fonts() -> None:
    try:
        drawing.fonts()
    except Missing as error:
        pytest.skip(str(error))


def test_overlap() -> None:
    boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 6, 6]], np.float64)
    assert np.allclose(overlap(boxes, (0, 0, 2, 2)), [1, 1 / 7, 0])


def test_boxes_are_distances_from_the_middle_of_a_place() -> None:
    """One place of the second scale says 1, 2, 3 and 4 strides, surely."""
    places = [(8, 8), (4, 4), (2, 2), (1, 1)]
    scores = [np.zeros((1, rows * columns, 2), np.float32) for rows, columns in places]
    shown = [np.zeros((1, rows * columns, 32), np.float32) for rows, columns in places]
    at = 4 * 2 + 1  # the third row, the second column
    scores[1][0, at] = 0.1, 0.9
    for side in range(4):
        shown[1][0, at, 8 * side + 1 + side] = 50
    found, boxes = best_boxes([*scores, *shown], 64, 64)
    best = int(found.max(axis=1).argmax())
    middle = np.array([1.5, 2.5, 1.5, 2.5]) * 16
    assert best == 64 + at
    assert np.allclose(boxes[best], middle + np.array([-1, -2, 3, 4]) * 16)


def test_a_seal_is_red_where_its_text_is() -> None:
    for seed in range(100, 104):
        picture, text = documents.seal_page(320, seed)
        red = (picture[..., 0] > 150) & (picture[..., 1] < 120)
        assert 0.02 < text.mean() < 0.2
        assert 0.15 < red[text].mean() < 0.8
        assert not np.array_equal(picture, documents.seal_page(320, seed + 4)[0])


def test_parts_of_a_document_contain_all_ink_and_do_not_meet() -> None:
    for seed in range(4):
        picture, blocks = documents.document(800, 608, seed)
        ink = picture.min(axis=2) < 128
        before = 0
        for _, (left, top, right, bottom) in blocks:
            assert before < top < bottom <= 800
            assert ink[top:bottom, left : right + 1].any()
            ink[top : bottom + 1, left : right + 2] = False
            before = bottom
        assert not ink.any()


def test_a_table_has_the_lines_of_its_cells() -> None:
    picture, (rows, columns) = documents.table(488, 3)
    dark = picture.min(axis=2) < 10
    assert (dark[:, 6:481].mean(axis=1) > 0.99).sum() == rows + 1
    down = dark[6 : 6 + 488 // 12 * rows]
    assert (down.mean(axis=0) > 0.99).sum() == columns + 1


def test_pictures_are_normalised_by_channel() -> None:
    made = normalised(np.full((2, 3, 3), 255, np.uint8))
    assert made.shape == (1, 3, 2, 3)
    assert made.dtype == np.float32
    assert np.allclose(made[0, :, 0, 0], [2.2489, 2.4286, 2.64], atol=1e-3)
