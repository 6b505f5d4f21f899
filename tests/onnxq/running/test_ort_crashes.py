"""What would end the process is refused before onnxruntime sees it."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from onnxq.errors import UnsupportedModelError
from onnxq.running import sessions
from onnxq.running.ort_crashes import check_survives
from tests.models.zoo import ZOO, inputs


def where(listed: int | None) -> onnx.ModelProto:
    """A model with a QLinearWhere, one of whose inputs is listed as a graph input."""
    proto = ZOO["qop_contrib_curves"]()
    if listed is not None:
        node = next(n for n in proto.graph.node if n.op_type == "QLinearWhere")
        name = node.input[listed]
        tensor = next(t for t in proto.graph.initializer if t.name == name)
        info = helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
        proto.graph.input.append(info)
    return proto


@pytest.mark.parametrize("listed", [3, 6])
def test_a_zero_point_that_callers_may_replace(listed: int) -> None:
    with pytest.raises(UnsupportedModelError, match=r"QLinearWhere.* crashes on it"):
        sessions.reference(where(listed))


@pytest.mark.parametrize("listed", [None, 2, 5, 7])
def test_what_onnxruntime_survives_is_run(listed: int | None) -> None:
    proto = where(listed)
    assert sessions.reference(proto).run(_needed(proto))


def _needed(proto: onnx.ModelProto) -> dict[str, object]:
    needed = {i.name for i in sessions.reference(proto).inputs}
    return {k: v for k, v in inputs(proto).items() if k in needed}


@pytest.mark.parametrize("at", [3, 6])
def test_a_zero_point_that_is_computed(at: int) -> None:
    proto = where(None)
    node = next(n for n in proto.graph.node if n.op_type == "QLinearWhere")
    proto.graph.node.insert(0, helper.make_node("Identity", [node.input[at]], ["made"]))
    node = next(n for n in proto.graph.node if n.op_type == "QLinearWhere")
    node.input[at] = "made"
    with pytest.raises(UnsupportedModelError, match="crashes on it"):
        check_survives(proto, "it", optimized=False)


def test_a_constant_node_is_a_constant() -> None:
    proto = where(None)
    node = next(n for n in proto.graph.node if n.op_type == "QLinearWhere")
    tensor = next(t for t in proto.graph.initializer if t.name == node.input[3])
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["made"], value=tensor))
    next(n for n in proto.graph.node if n.op_type == "QLinearWhere").input[3] = "made"
    check_survives(proto, "it", optimized=False)


def norm(inputs: str, front: str = "Add") -> onnx.ModelProto:
    """A LayerNormalization behind an operator."""
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1,2,4] x, float[1,2,4] z) => '
        "(float[1,2,4] y) <float[4] w = {1,2,3,4}, float[4] b = {1,1,1,1}>"
        f"{{ s = {front}(x, z)  y = LayerNormalization({inputs}) }}"
    )
    names = list(proto.graph.node[1].input)
    proto.graph.node[1].input[:] = ["" if name == "blank" else name for name in names]
    return proto


@pytest.mark.parametrize("front", ["Add", "Mul"])
def test_a_blank_bias_is_refused_for_optimised_sessions_only(front: str) -> None:
    proto = norm("s, w, blank", front)
    assert sessions.reference(proto).run(inputs(proto))
    assert "has a blank bias" in str(sessions.deployed(proto).note)
    with pytest.raises(UnsupportedModelError, match=r"LayerNormalization.* crashes on it"):
        sessions.shipped(proto)


@pytest.mark.parametrize("proto", [norm("s, w"), norm("s, w, b")])
def test_other_norms_are_run_by_optimised_sessions(proto: onnx.ModelProto) -> None:
    assert sessions.shipped(proto).run(inputs(proto))
