"""Windows over height and width, with explicit pads."""

from __future__ import annotations

import onnx_graphsurgeon as gs
import pytest

from onnxq.ncnn.network import NotInNcnn
from onnxq.ncnn.planes import integers, windows


def test_one_axis_gets_a_height_of_1() -> None:
    found = windows(gs.Node("Conv", attrs={"pads": [1, 2], "strides": [2]}), (9,), (3,))
    assert (found.kernel, found.strides, found.dilations) == ((1, 3), (1, 2), (1, 1))
    assert (found.begins, found.padding) == ((0, 1), (0, 2))


def test_automatic_pads_become_explicit() -> None:
    found = windows(gs.Node("Conv", attrs={"auto_pad": "SAME_UPPER"}), (6, 6), (3, 2))
    assert (found.begins, found.padding) == ((1, 0), (1, 1))


def test_negative_pads_are_refused() -> None:
    with pytest.raises(NotInNcnn, match="negative"):
        windows(gs.Node("Conv", attrs={"pads": [-1, 0, 0, 0]}), (6, 6), (3, 3))


def test_three_axes_are_refused() -> None:
    with pytest.raises(NotInNcnn, match="3 axes"):
        windows(gs.Node("MaxPool"), (6, 6, 6), (3, 3, 3))


def test_integers() -> None:
    assert integers(gs.Node("Conv", attrs={"pads": (1, 2)}), "pads", [0]) == [1, 2]
    assert integers(gs.Node("Conv"), "pads", [0]) == [0]
