"""What onnxruntime is asked about: small, with names that are found again, never a wrong answer."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxq.graph import from_proto
from onnxq.ort_fusion import probe as probes
from onnxq.ort_fusion.prediction import predict
from onnxq.ort_fusion.probe import probe, source_of
from tests.models.zoo import QDQ, ZOO
from tests.models.zoo_build import Build, channel_scale

UINT8 = TensorProto.UINT8


def without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "LARGE", 64)  # weights; scales and biases are vectors


@pytest.mark.parametrize("name", sorted(QDQ))
def test_values_of_weights_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = ZOO[name]()
    whole = predict(from_proto(proto))
    without_values(monkeypatch)
    assert predict(from_proto(proto)) == whole


def test_large_constants_inside_and_outside_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = ZOO["qdq_in_if"]()
    for tensor in [t for t in proto.graph.initializer if len(t.dims) > 1]:
        node = onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        proto.graph.initializer.remove(tensor)
        proto.graph.node.insert(0, node)
    whole = predict(from_proto(proto))
    assert whole.nodes
    without_values(monkeypatch)
    assert predict(from_proto(proto)) == whole


def layer(op: str, weight: np.ndarray, *, pair: bool, turned: bool, bias: bool) -> onnx.ModelProto:
    b = Build(17)
    x = b.qdq(b.input("x", [2, 8] if weight.ndim == 2 else [1, 4, 6, 6]), 0.1, 128, UINT8)
    scale = channel_scale(weight, 0)
    w = b.init(weight.T if turned and not pair else weight)
    if pair:
        w = b.qdq(w, scale, 0, TensorProto.INT8, axis=0)
    if turned:
        w = b.op("Transpose", w, perm=list(range(weight.ndim))[::-1], out="turned")
    y = b.op(op, x, w, out="layer")
    if bias:
        y = b.op("Add", y, b.init(b.random(8)), out="sum")
    return b.model(b.qdq(y, 0.05, 128, UINT8))


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize(
    ("op", "shape", "turned", "bias"),
    [
        ("Conv", (4, 4, 3, 3), False, False),
        ("ConvTranspose", (4, 4, 3, 3), False, False),
        ("Gemm", (8, 8), False, False),
        ("Gemm", (8, 8), True, False),
        ("MatMul", (8, 8), True, False),
        ("MatMul", (8, 8), True, True),
        ("MatMul", (8, 8), False, True),
        ("MatMul", (8, 8), False, False),
    ],
)
def test_float_and_transposed_weights_without_values(
    op: str,
    shape: tuple[int, ...],
    turned: bool,
    bias: bool,
    pair: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    proto = layer(op, weight, pair=pair, turned=turned, bias=bias)
    whole = predict(from_proto(proto))
    without_values(monkeypatch)
    asked = probe(from_proto(proto))
    assert sum(len(t.raw_data) for t in asked.proto.graph.initializer) < 128
    assert predict(from_proto(proto)) == whole


def test_a_large_weight_is_neither_read_nor_written(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [2, 256]), 0.1, 128, UINT8)
    weight = b.stored(np.ones((256, 512), np.float32), np.float32(0.01), TensorProto.INT8)
    model = from_proto(b.model(b.qdq(b.op("MatMul", x, weight, out="layer"), 0.1, 128, UINT8)))
    assert probe(model).proto.ByteSize() < 4096
    assert predict(model).nodes["layer"].kernel == "QLinearMatMul"


def test_nodes_are_found_by_their_names() -> None:
    asked = probe(from_proto(ZOO["qdq_in_if"]()))
    assert [source_of(node.name) for node in asked.nodes] == list(range(len(asked.nodes)))
    assert source_of("onnxq-node-12./MatMulAddFusion") == 12
    assert source_of("a node of the user's") == -1


@pytest.mark.parametrize("known", [True, False])
def test_operators_of_a_library_are_left_out(known: bool) -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.1, 128, UINT8)
    y = b.op("Conv", x, b.stored(b.weight_values(4, 4, 3, 3), 0.01), out="layer")
    y = b.op("Neg", b.qdq(y, 0.1, 128, UINT8), out="swirled")
    y = b.op("Conv", b.qdq(y, 0.1, 128, UINT8), b.stored(b.weight_values(4, 4, 3, 3), 0.01))
    proto = b.model(b.qdq(y, 0.1, 128, UINT8))
    (node,) = (node for node in proto.graph.node if node.op_type == "Neg")
    node.op_type, node.domain = "Swirl", "my.library"
    proto.opset_import.add(domain="my.library", version=1)
    if not known:
        del proto.graph.value_info[:]
    found = predict(from_proto(proto))
    assert [p.kernel for p in found.nodes.values() if p.op == "Conv"] == ["QLinearConv"] * 2
    assert found.nodes["swirled"].rule == "no-integer-kernel"
    assert found.refusals == ()
