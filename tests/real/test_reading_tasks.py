"""Letters of scores, and pages whose words are where they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.real import drawing
from tests.real.reading_tasks import decoded
from tests.real.task import Missing


def test_the_best_path() -> None:
    steps = np.eye(4)[[0, 1, 1, 0, 1, 2, 3, 3, 0]]
    assert decoded(steps, ["", "a", "b", "c"]) == "aabc"
    assert decoded(np.eye(4)[[0, 0]], ["", "a", "b", "c"]) == ""


def test_words_of_the_test_are_not_calibrated_with() -> None:
    assert len(drawing.TEST_WORDS) == 50
    assert not set(drawing.TEST_WORDS) & set(drawing.CALIBRATION_WORDS)


def test_boxes_contain_all_ink() -> None:
    try:
        drawn, boxes = drawing.page(200, 300, 0)
    except Missing as error:
        pytest.skip(str(error))
    assert boxes
    ink = drawn < 128
    for left, top, right, bottom in boxes:
        assert ink[top : bottom + 8, left:right].any()
        ink[top : bottom + 8, left - 2 : right + 3] = False
    assert not ink.any()
