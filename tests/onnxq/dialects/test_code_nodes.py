from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.dialects.code_nodes import CodeGrid, CodeNodes, grid_of
from onnxq.dialects.node_rewrite import Declined
from onnxq.errors import QParamsError
from onnxq.graph import Model
from tests.models.build import ops, parse, tensor

BODY = """g (uint8[2,3] q, float t) => (float[2,3] y, float[2,3] u)
<float s = {0.5}, uint8 z = {3}, float[1] s1 = {0.25}, float[3] s3 = {1, 2, 3}, int8 n = {-1},
 uint8[3] z3 = {1, 2, 3}, float bad = {-1}> {
    y = DequantizeLinear(q, %s)
    u = DequantizeLinear(q, s, z)
}"""


def node(parameters: str) -> gs.Node:
    return parse(BODY % parameters).nodes("DequantizeLinear")[0]


def grid(parameters: str, axis: int | None = 1) -> CodeGrid:
    found = node(parameters)
    return grid_of(found, 1, found.inputs[0], axis)


def test_grids_have_the_shape_their_scale_needs() -> None:
    assert grid("s1, z").scale.shape == ()
    per_channel = grid("s3, z3")
    assert (per_channel.axis, per_channel.scale.shape) == (1, (3,))
    np.testing.assert_array_equal(grid("s3, z").zero_point, [3, 3, 3])
    assert grid("s1, z").axis is None


def test_without_zero_point_it_is_zero_in_the_type_of_the_codes() -> None:
    found = grid("s")
    assert (found.zero_point.dtype, int(found.zero_point)) == (np.uint8, 0)


@pytest.mark.parametrize(
    ("parameters", "axis", "why"),
    [("t, z", 1, "scale 't' .* run time"), ("s3, z3", None, r"shape \[3\]")],
)
def test_what_cannot_be_read_says_why(parameters: str, axis: int | None, why: str) -> None:
    with pytest.raises(Declined, match=why):
        grid(parameters, axis)


def test_broken_parameters_are_errors() -> None:
    with pytest.raises(QParamsError, match="3 zero points"):
        grid("s, z3")
    negative = grid("bad, z", None)
    with pytest.raises(QParamsError, match=r"'q'.*positive"):
        negative.checked(node("bad, z").inputs[0])


def test_one_dequantizer_serves_equal_readers() -> None:
    model = parse(BODY % "s, z")
    codes, make = tensor(model, "q"), CodeNodes(model)
    one = make.real(codes, CodeGrid(np.float32(0.5).reshape(()), np.uint8(3).reshape(())))
    same = make.real(codes, CodeGrid(np.float32(0.5).reshape(()), np.uint8(3).reshape(())))
    other = make.real(codes, CodeGrid(np.float32(1).reshape(()), np.uint8(3).reshape(())))
    assert one is same is not other
    assert one.name == "q.dequantized"
    assert one.dtype == np.float32


@pytest.mark.parametrize(("codes", "real"), [("c", "c.real"), ("c.codes", "c")])
def test_names_of_real_values_follow_from_those_of_codes(codes: str, real: str) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    tensor_ = gs.Variable(codes, np.dtype(np.uint8), [2])
    source = CodeNodes(model).source(
        tensor_, CodeGrid(np.ones((), np.float32), np.uint8(0).reshape(())), model.graph
    )
    assert source.name == real
    assert tensor_.inputs[0].op == "QuantizeLinear"


def test_scales_per_channel_raise_an_old_opset() -> None:
    model: Model = parse(BODY % "s, z", opset=10)
    made = CodeGrid(np.ones(3, np.float32), np.zeros(3, np.uint8), 1)
    CodeNodes(model).real(tensor(model, "q"), made)
    assert model.opset == 13
    assert ops(model).count("DequantizeLinear") == 3
