"""What moves, joins, cuts and pads."""

from __future__ import annotations

import pytest

from onnxq.errors import BackendError
from onnxq.ncnn import writer
from onnxq.ncnn.program import Layer
from passes.infer_shapes import InferShapes
from tests.models.build import apply, parse
from tests.onnxq.ncnn.cases import graph, shaped


def kinds(name: str) -> list[str]:
    return [layer.type for layer in writer.layers_of(graph(name))]


def only(name: str, kind: str) -> Layer:
    (found,) = [layer for layer in writer.layers_of(graph(name)) if layer.type == kind]
    return found


def test_parts_that_nothing_reads_are_no_outputs() -> None:
    assert kinds("Split in part") == ["Input", "Crop"]
    crop = only("Split in part", "Crop")
    assert [crop.params[key] for key in (9, 10, 11)] == [(1,), (3,), (0,)]
    assert only("Split", "Slice").params == {0: (1, 3), 1: 0}


def test_steps_are_pools_with_windows_of_one_element() -> None:
    assert kinds("Slice with steps") == ["Input", "Crop", "Pooling"]
    pool = only("Slice with steps", "Pooling")
    assert [pool.params[key] for key in (1, 11, 2, 12)] == [1, 1, 3, 2]


def test_ends_beyond_the_input_are_cut() -> None:
    crop = only("Slice", "Crop")
    assert [crop.params[key] for key in (9, 10, 11)] == [(1, 3), (3, 6), (0, 2)]


def test_channels_are_padded_in_front_and_behind() -> None:
    pad = only("Pad of channels", "Padding")
    assert [pad.params[key] for key in (7, 8, 0, 1, 2, 3)] == [1, 2, 0, 0, 1, 0]
    assert 7 not in only("Pad", "Padding").params


def test_before_opset_10_ranges_are_attributes() -> None:
    text = "g (float[1,6] x) => (float y) { y = Slice<starts=[1], ends=[4], axes=[1]>(x) }"
    (crop,) = [la for la in writer.layers_of(shaped(text, 9)) if la.type == "Crop"]
    assert [crop.params[key] for key in (9, 10, 11)] == [(1,), (4,), (0,)]


INTS = "int64[1] s = {0}, int64[1] e = {100}, int64[1]"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"<{INTS} a = {{1}}, int64[1] t = {{2}}> {{ y = Slice(x, s, e, a, t) }}", "step is not 1"),
        ("{ y = Concat<axis=0>(x, x) }", "joins batches"),
        ("<int64[2] i = {2, 0}> { y = Gather<axis=1>(x, i) }", "not consecutive"),
        ("{ a, y = Split<axis=0>(x) }", "along the batch"),
        ("<int64[8] p = {0,0,-1,0,0,0,0,0}> { y = Pad(x, p) }", "it cuts"),
        ("<int64[8] p = {0,1,0,0,0,0,0,0}> { y = Pad<mode=\"edge\">(x, p) }", "pads channels"),
    ],
)  # fmt: skip
def test_refusals(body: str, why: str) -> None:
    batch = 2 if "Split" in body else 1
    with pytest.raises(BackendError, match="first axis of 2" if batch == 2 else why):
        writer.layers_of(shaped(f"g (float[{batch},4,4,4] x) => (float y) {body}"))


def test_embeddings_are_refused_by_name() -> None:
    """The first axis of a table counts words; it is no batch."""
    model = parse(
        "g (int64[1,8] x) => (float[1,8,1] y) <float[3,1] table = {1, 2, 3}> { "
        "y = Gather<axis=0>(table, x) }"
    )
    with pytest.raises(BackendError, match=r"rows up in the constant 'table'.*embedding") as caught:
        writer.layers_of(apply(model, InferShapes())[0])
    assert "in the application" in caught.value.fix
