"""Layers that cut, pad and move: what does not fit its blobs is refused."""

from __future__ import annotations

import pytest

from onnxq.errors import LoadError
from onnxq.ncnn.program import Layer
from onnxq.ncnn.reader import model_of

INPUT = Layer("Input", "x", (), ("x",), {0: 5, 1: 4, 2: 3})


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Layer("Slice", "s", ("x",), ("a", "b"), {0: (1, 1, 1), 1: 0}), "do not fit its blobs"),
        (Layer("Slice", "s", ("x",), ("a", "b"), {0: (1, 2), 1: 3}), "do not fit its blobs"),
        (Layer("Slice", "s", ("x",), ("a", "b"), {0: 1, 1: 0}), "not a list"),
        (Layer("Crop", "c", ("x",), ("y",), {9: (1,), 10: (2,), 11: (3,)}), "do not fit"),
        (Layer("Crop", "c", ("x",), ("y",), {9: (2,), 10: (2,), 11: (0,)}), "no elements"),
        (Layer("Crop", "c", ("x",), ("y",), {9: (0, 0), 10: (1, 1), 11: (1, 0)}), "do not fit"),
        (Layer("Padding", "p", ("x",), ("y",), {0: 1, 1: 0, 2: 0, 3: 0, 4: 9}), "type 9"),
        (Layer("Padding", "p", ("x",), ("y",), {0: -1, 1: 0, 2: 0, 3: 0, 4: 0}), "negative"),
        (Layer("PixelShuffle", "p", ("x",), ("y",), {0: 0, 1: 0}), "not positive"),
        (Layer("Permute", "p", ("x",), ("y",), {0: 6}), "order 6 of 3 axes"),
    ],
)
def test_refusals(layer: Layer, why: str) -> None:
    with pytest.raises(LoadError, match=rf"'{layer.name}' \({layer.type}\).*{why}"):
        model_of([INPUT, layer])


def test_a_vector_has_no_rows_to_pad() -> None:
    vector = Layer("Input", "x", (), ("x",), {0: 5})
    layer = Layer("Padding", "p", ("x",), ("y",), {0: 1, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0.0})
    with pytest.raises(LoadError, match="does not have"):
        model_of([vector, layer])
