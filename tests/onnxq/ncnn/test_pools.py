"""Pools and resizing: what rounding up adds, and which positions are taken."""

from __future__ import annotations

import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import writer
from onnxq.ncnn.program import Layer
from tests.onnxq.ncnn.cases import graph, shaped


def only(name: str, kind: str) -> Layer:
    (found,) = [layer for layer in writer.layers_of(graph(name)) if layer.type == kind]
    return found


def test_rounding_up_pads_the_end() -> None:
    pool = only("MaxPool rounding up", "Pooling")
    assert [pool.params[key] for key in (3, 13, 14, 15)] == [0, 0, 1, 0]


def test_factors_of_interp_are_ratios_of_sizes() -> None:
    layer = only("Resize linear by corners", "Interp")
    assert [layer.params[key] for key in (0, 1, 2, 3, 4, 6)] == [2, 1.5, 2.0, 9, 12, 1]
    assert only("Resize", "Interp").params[0] == 1


RESIZE = "<int64[4] n = {1, 2, 9, 9}> { y = Resize<%s>(x, , , n) }"


@pytest.mark.parametrize(
    ("body", "why", "fix"),
    [
        (
            "{ y = AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1, "
            "pads=[1,1,1,1], count_include_pad=1>(x) }",
            "counts the padding",
            "Pad node",
        ),
        ("{ y = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(x) }", "dilated", "without"),
        (RESIZE % "mode=\"nearest\"", "half_pixel and round_prefer_floor", "integer factors"),
        (RESIZE % "mode=\"cubic\"", "by cubic", "linear"),
        (
            "<float[4] f = {1, 1, 1.3, 1.3}> { y = Resize<mode=\"linear\">(x, , f) }",
            "no whole number of 6",
            "sizes",
        ),
        (
            "<float[4] f = {1, 1, 2, 2}> { y = Resize<mode=\"nearest\", "
            "coordinate_transformation_mode=\"asymmetric\">(x, , f) }",
            "asymmetric and round_prefer_floor",
            "floor",
        ),
    ],
)  # fmt: skip
def test_refusals(body: str, why: str, fix: str) -> None:
    with pytest.raises(BackendError, match=why) as caught:
        writer.layers_of(shaped(f"g (float[1,2,6,6] x) => (float y) {body}"))
    assert fix in caught.value.fix
