"""Predictions about onnxruntime, held to the graph it really runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto

from onnxq.errors import BackendError, OnnxqError
from onnxq.graph import from_proto
from onnxq.operators.fused_operators import RULES
from onnxq.ort_fusion.prediction import Outlook, predict
from onnxq.ort_fusion.prediction import outlook as judged
from onnxq.ort_fusion.probe import probe
from onnxq.running.sessions import reference, shipped
from onnxq.storage.function_form import all_nodes
from onnxq.workflows.convert import convert
from tests.checks.optimized import INTEGER_OPS, optimized, optimized_ops
from tests.checks.tables import TableRow
from tests.models.fusion_graphs import fusion_graphs
from tests.models.strategies import qdq_graphs
from tests.models.zoo import QDQ, ZOO
from tests.models.zoo_build import Build, channel_scale, tensor_scale

COMPARED = ("Conv", "Gemm", "MatMul", "Add")
GRAPHS = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
UINT8, INT8 = TensorProto.UINT8, TensorProto.INT8


def outlook(proto: onnx.ModelProto) -> Outlook:
    return predict(from_proto(proto))


def compare(proto: onnx.ModelProto) -> int:
    """Hold every prediction to the default session, and every reason to the prediction.

    The session is made with all optimisations and other names than `predict` asks with. Returns
    how many nodes were compared.
    """
    predicted = outlook(proto)
    loads = [refusal.loads for refusal in predicted.refusals]
    if False in loads:
        with pytest.raises(OnnxqError):
            optimized(proto, "shipped")
    expected = judged(probe(from_proto(proto)), None, None)
    for key, found in predicted.nodes.items():
        assert found.rule != "unexplained"
        assert found.integer == expected.nodes[key].integer, f"{expected.nodes[key]}, but {found}"
    if not all(loads):
        return 0
    assert [r for r in expected.refusals if r.loads is False] == []
    real = optimized(proto, "shipped")
    compared = 0
    for node in all_nodes(proto.graph.node):
        if node.op_type not in COMPARED:
            continue
        found = predicted.nodes.get(node.output[0])
        if found is None:  # it is computed at load, or an equal node is
            assert not real.is_integer(node.output[0])
            continue
        compared += 1
        if found.merged_into:
            assert not real.ops.get(node.output[0]), f"{node.op_type} {node.output[0]} stays"
        else:
            assert found.integer == real.is_integer(node.output[0]), f"{found}, but {real.ops}"
    # Whatever names say, the kernels must be those.
    kernels = Counter(
        p.kernel
        for p in predicted.nodes.values()
        if p.kernel in INTEGER_OPS and not p.merged_into and not p.op.endswith(p.kernel)
    )
    stored = [p.kernel for p in predicted.nodes.values() if p.op.endswith(p.kernel or " ")]
    before = Counter(n.op_type for n in all_nodes(proto.graph.node) if n.op_type in INTEGER_OPS)
    assert kernels + before == real.kernels
    assert Counter(k for k in stored if k in INTEGER_OPS) == before
    return compared


@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_zoo_as_it_is(name: str, table_row: TableRow) -> None:
    nodes = compare(ZOO[name]())
    if nodes:
        table_row("lint: predicted = run by onnxruntime", model=name, form="as is", nodes=nodes)


@pytest.mark.parametrize("name", sorted(QDQ))
def test_the_zoo_converted(name: str, table_row: TableRow) -> None:
    try:
        done = convert(from_proto(ZOO[name]()), "onnxruntime", verify=False)
    except BackendError as refused:
        pytest.skip(f"not for onnxruntime: {refused.what.splitlines()[0]}")
    nodes = compare(done.model.to_proto())
    if nodes:
        table_row("lint: predicted = run by onnxruntime", model=name, form="converted", nodes=nodes)


@GRAPHS
@given(fusion_graphs())
def test_graphs_that_vary_what_decides(proto: onnx.ModelProto) -> None:
    compare(proto)


@settings(GRAPHS, max_examples=60)
@given(qdq_graphs())
def test_graphs_of_all_kinds(proto: onnx.ModelProto) -> None:
    compare(proto)


# -- the reasons -------------------------------------------------------------------------------


def layer(
    *,
    act: str = "",
    out: tuple[float, int, int] | None = (0.05, 128, UINT8),
    source: tuple[float, int, int] = (0.1, 128, UINT8),
    weight_type: int = INT8,
    bias: float | None = None,
    opset: int = 17,
    readers: int = 1,
    op: str = "Conv",
) -> onnx.ModelProto:
    """One layer between quantizers; `bias` is its scale in units of sx * sw."""
    b = Build(opset, seed=1)
    shape = [1, 4, 5, 5] if op != "Gemm" else [2, 4]
    x = b.qdq(b.input("x", shape), source[0], source[1], source[2])
    value = b.weight_values(*([4, 4, 3, 3] if op != "Gemm" else [4, 3]))
    scale = tensor_scale(value, 7 if weight_type == TensorProto.INT4 else 127)
    args = [b.stored(value, scale, weight_type)]
    if bias is not None:
        size = value.shape[0 if op != "Gemm" else 1]
        args.append(b.bias32(b.random(size, scale=3), np.float32(source[0] * scale * bias)))
    y = b.op(op, x, *args, out="layer")
    if act == "Clip":
        y = b.op("Clip", y, b.init(np.float32(0)), b.init(np.float32(6)))
    elif act:
        y = b.op(act, y)
    ends = [b.op("Neg", x) for _ in range(readers - 1)]
    return b.model(b.qdq(y, out[0], out[1], out[2]) if out else y, *ends)


FLOAT_LAYERS = {
    "Relu with the zero point in the middle": (
        layer(act="Relu"),
        "activation-stays",
        "zero point after it is 128, not the lowest code 0",
    ),
    "Clip inside the range": (
        layer(act="Clip", out=(0.1, 0, UINT8)),
        "activation-stays",
        "it cuts at 0..6, inside the range 0..25.5",
    ),
    "no output quantizer": (layer(out=None), "no-output-quantizer", "not quantized"),
    "Sigmoid in between": (layer(act="Sigmoid"), "no-output-quantizer", "not quantized"),
    "bias scale": (layer(bias=2.0), "bias-scale", "more than 1 % away"),
    "16 bits": (
        layer(source=(0.01, 0, TensorProto.INT16), out=(0.01, 0, TensorProto.INT16), opset=21),
        "16-bit",
        "int16",
    ),
    "4 bits": (layer(weight_type=TensorProto.INT4, opset=21), "4-bit", "int4"),
    "int8 codes with two readers": (
        layer(source=(0.1, 0, INT8), readers=2, opset=17),
        "mixed-types",
        "input codes are int8",
    ),
    "ConvTranspose": (layer(op="ConvTranspose"), "no-integer-kernel", "no integer kernel"),
    "types differ": (layer(out=(0.05, 9, TensorProto.UINT16), opset=21), "mixed-types", "uint16"),
}


@pytest.mark.parametrize("case", FLOAT_LAYERS)
def test_why_a_layer_runs_in_float(case: str) -> None:
    proto, rule, words = FLOAT_LAYERS[case]
    found = outlook(proto).nodes["layer"]
    assert not found.integer
    assert found.rule == rule
    assert words in found.reason
    compare(proto)


INTEGER_LAYERS = {
    "plain": layer(),
    "Relu at the lowest code": layer(act="Relu", out=(0.05, 0, UINT8)),
    "Relu at the lowest code, int8": layer(
        act="Relu", out=(0.05, -128, INT8), source=(0.1, 0, INT8)
    ),
    "Clip around the range": layer(act="Clip", out=(0.02, 0, UINT8)),
    "bias": layer(bias=1.0),
    "bias off by 0.1 %": layer(bias=1.001),
    "int8": layer(source=(0.1, 3, INT8), out=(0.05, 3, INT8)),
    "uint8 weight": layer(weight_type=UINT8),
}


@pytest.mark.parametrize("case", INTEGER_LAYERS)
def test_what_runs_in_integers(case: str) -> None:
    proto = INTEGER_LAYERS[case]
    assert outlook(proto).nodes["layer"].kernel == "QLinearConv"
    compare(proto)


def test_every_rule_names_an_operator_onnxruntime_has() -> None:
    assert {r.kernel for r in RULES.values()} - {""} <= INTEGER_OPS
    for op in RULES:
        assert onnx.defs.has(op)


# -- what onnxruntime does that no one asked for -----------------------------------------------


def test_a_float_weight_between_quantizers_is_quantized_by_onnxruntime() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 5, 5]), 0.1, 128, UINT8)
    y = b.op("Conv", x, b.init(b.weight_values(4, 4, 3, 3)), out="layer")
    proto = b.model(b.qdq(y, 0.05, 128, UINT8))
    found = outlook(proto).nodes["layer"]
    assert (found.kernel, found.requantized) == ("QLinearConv", True)
    assert compare(proto)


@pytest.mark.parametrize("op", ["Reshape", "Transpose"])
@pytest.mark.parametrize(("opset", "refused"), [(17, False), (21, True)])
def test_int8_in_front_of_a_layout_change_is_refused_from_opset_21_on(
    op: str, opset: int, refused: bool
) -> None:
    b = Build(opset)
    x = b.qdq(b.input("x", [1, 4, 6]), 0.1, 0, INT8)
    y = b.op(op, x, b.ints(1, -1)) if op == "Reshape" else b.op(op, x, perm=[0, 2, 1])
    proto = b.model(b.op("Neg", y))
    assert bool(outlook(proto).refusals) is refused
    compare(proto)


def half(op: str, kind: type[np.generic] = np.uint8) -> onnx.ModelProto:
    """An operator between quantizers with equal float16 scales."""
    b = Build(19)

    def pair(x: str) -> str:
        scale, zero = b.init(np.float16(0.5)), b.init(kind(3))
        return b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, zero), scale, zero)

    x = pair(b.input("x", [1, 4, 4, 4], TensorProto.FLOAT16))

    def other() -> list[str]:
        return [pair(b.input("z", [1, 4, 4, 4], TensorProto.FLOAT16))]

    more = {
        "Add": other,
        "Concat": other,
        "Conv": lambda: [pair(b.init(np.ones((2, 4, 1, 1), np.float16)))],
        "Expand": lambda: [b.ints(2, 4, 4, 4)],
        "Gather": lambda: [b.ints(0, 2)],
        "GatherElements": lambda: [b.init(np.zeros((1, 4, 4, 4), np.int64))],
        "Reshape": lambda: [b.ints(1, -1)],
        "Resize": lambda: ["", b.init(np.ones(4, np.float32) * 2)],
        "Slice": lambda: [b.ints(1), b.ints(3), b.ints(1)],
        "Squeeze": lambda: [b.ints(0)],
        "Tile": lambda: [b.ints(1, 2, 1, 1)],
        "Unsqueeze": lambda: [b.ints(0)],
    }
    attrs: dict[str, dict[str, Any]] = {
        "Concat": {"axis": 1},
        "DepthToSpace": {"blocksize": 2},
        "Gather": {"axis": 1},
        "MaxPool": {"kernel_shape": [2, 2]},
        "Split": {"axis": 1, "num_outputs": 1},
        "Transpose": {"perm": [0, 2, 3, 1]},
    }
    made = b.op(op, x, *more.get(op, list)(), out="layer", **attrs.get(op, {}))
    return b.model(pair(made))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "op",
    [
        *("Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "Split"),
        *("Squeeze", "Transpose", "Unsqueeze"),
        *("Add", "Conv", "DepthToSpace", "MaxPool", "ReduceMax", "Resize", "Sigmoid", "Tile"),
    ],
)
def test_float16_scales_stop_what_has_no_float16_kernel(op: str, kind: type[np.generic]) -> None:
    proto = half(op, kind)
    found = outlook(proto).nodes["layer"]
    real = optimized_ops(proto, "shipped")
    assert found.integer == (real["QuantizeLinear"] == 1), real
    assert found.rule == ("" if found.integer else "half")
    compare(proto)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_concat_with_float16_scales_does_not_load(kind: type[np.generic]) -> None:
    proto = half("Concat", kind)
    (refusal,) = outlook(proto).refusals
    assert (refusal.output, refusal.loads) == ("layer", False)
    assert "float16 scales to QLinearConcat" in refusal.reason
    assert refusal.fix == "compute in float32"
    compare(proto)


def test_a_gemm_bias_of_the_wrong_scale_is_fused_and_wrong() -> None:
    """The reason for the lint rule gemm-bias-scale; it fails when onnxruntime mends this."""
    proto = layer(op="Gemm", bias=2.0)
    assert outlook(proto).nodes["layer"].kernel == "QGemm"
    feeds = {"x": np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)}
    (right,), (wrong,) = (s(proto).run(feeds).values() for s in (reference, shipped))
    assert np.abs(right - wrong).max() > 10 * 0.05


def test_a_bias_of_a_transposed_convolution_is_rounded_with_the_scales_of_the_other_axis() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 3, 5, 5]), 2.0**-6, 128, UINT8)
    scales = np.float32([2.0**-30, 2.0**-12, 2.0**-12])
    weight = b.stored(np.zeros((3, 3, 1, 1), np.float32), scales, axis=1)
    bias = np.float32([2.0**33, 100, -7]) * scales * np.float32(2.0**-6)
    y = b.op("ConvTranspose", x, weight, b.init(bias), out="layer")
    proto = b.model(b.qdq(y, float(bias.max()) / 100, 128, UINT8))
    feeds = {"x": np.zeros((1, 3, 5, 5), np.float32)}
    (right,), (wrong,) = (s(proto).run(feeds).values() for s in (reference, shipped))
    assert np.abs(right - wrong).max() > np.abs(right).max() / 2
    (refusal,) = outlook(proto).refusals
    assert (refusal.output, refusal.loads) == ("layer", True)


def test_a_body_that_reads_a_pair_outside_runs_in_float() -> None:
    done = convert(from_proto(ZOO["qop_in_if"]()), "onnxruntime", verify=False)
    found = [p for p in predict(done.model).nodes.values() if p.op == "Transpose"]
    assert sorted(p.integer for p in found) == [False, True]


def test_what_onnxruntime_refuses_for_other_reasons_is_told_in_its_own_words() -> None:
    proto = layer(op="Gemm")
    (weight,) = (t for t in proto.graph.initializer if list(t.dims) == [4, 3])
    weight.dims[:] = [3, 4]
    del proto.graph.value_info[:]
    (node,) = (node for node in proto.graph.node if node.op_type == "Gemm")
    node.op_type = "MatMul"
    (refusal,) = outlook(proto).refusals
    assert (refusal.output, refusal.loads) == ("layer", False)
    assert "Incompatible dimensions" in refusal.reason
    assert "onnxq-node" not in refusal.reason


def test_several_forms_of_one_layer_have_one_prediction_each() -> None:
    b = Build(17)
    value = b.weight_values(6, 5)
    x = b.qdq(b.input("x", [2, 6]), 0.1, 128, UINT8)
    w = b.stored(value, channel_scale(value, 1), INT8, axis=1)
    y = b.op("MatMul", x, w, out="product")
    y = b.op("Add", y, b.init(b.random(5)), out="sum")
    nodes = outlook(b.model(b.qdq(y, 0.05, 128, UINT8))).nodes
    assert nodes["product"].kernel == nodes["sum"].kernel == "QGemm"
    assert nodes["sum"].merged_into == "product"
    assert nodes["sum"].op == "Add"


def test_the_model_is_not_changed() -> None:
    model = from_proto(ZOO["qdq_residual"]())
    before = model.to_proto().SerializeToString(deterministic=True)
    predict(model)
    assert model.to_proto().SerializeToString(deterministic=True) == before
