"""The canonical form as MQBench's classic operators, and the way back."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.canonical import fake_quantize_log
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import insert
from onnxq.errors import PassError
from onnxq.graph import Model, constants, from_proto
from onnxq.quant.qparams import Role
from passes.collect_qparams import CollectQParams
from passes.read_mqbench import ReadMqbench
from passes.read_qdq import ReadQdq
from passes.to_mqbench import ToMqbench
from tests.models.build import apply, ops, parse, quantize, tensor, weight
from tests.models.canonical import Canonical, assert_same_outputs, canonical_models
from tests.models.strategies import qdq_graphs
from tests.models.zoo import QDQ, ZOO

SETTINGS = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def table(model: Model) -> list[str]:
    """The rows; a saved file may hold nodes, and so readers and rows, in another order."""
    rows = [row.to_json() for row in apply(model, CollectQParams())[0].qparams]
    for row in rows:
        row.pop("source", None)
        row["readers"] = sorted(row.get("readers", []))
    return sorted(json.dumps(row) for row in rows)


def comes_back(canonical: Model) -> Model:
    """Write, save, load and read; the model with private operators."""
    written, _ = apply(canonical, ToMqbench())
    assert not written.nodes(FAKE_QUANTIZE)
    read, trace = apply(from_proto(written.to_proto()), ReadMqbench())
    assert trace.skips == []
    assert table(read) == table(canonical)
    assert_same_outputs(canonical, read)
    return written


def test_one_scale_is_written_as_the_classic_exporter_does() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    quantize(model, "x", qtype="uint8", zero_point=7)
    written, _ = apply(model, ToMqbench())
    proto = written.to_proto()
    (node,) = (n for n in proto.graph.node if n.op_type == "LearnablePerTensorAffine")
    assert (node.domain, len(node.attribute)) == ("", 0)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    scale, zero = stored[node.input[1]], stored[node.input[2]]
    assert (scale.shape, scale.dtype, zero.shape, zero.dtype) == ((1,), "float32", (1,), "float32")
    made = {n.output[0]: n for n in proto.graph.node}
    bounds = [onnx.numpy_helper.to_array(made[i].attribute[0].t) for i in node.input[3:]]
    assert [made[i].op_type for i in node.input[3:]] == ["Constant", "Constant"]
    assert [(int(b), b.dtype) for b in bounds] == [(0, np.int64), (255, np.int64)]
    comes_back(model)


@pytest.mark.parametrize(
    ("layer", "axis", "op"),
    [
        ("Conv(x, w)", 0, "FakeQuantizeLearnablePerchannelAffine"),
        ("ConvTranspose(x, w)", 1, "FakeQuantizeLearnablePerchannelAffine"),
        ("Conv(x, w)", 1, "FixedPerChannelAffine"),
    ],
)
def test_the_axis_is_implied_or_stated(layer: str, axis: int, op: str) -> None:
    model = parse(
        f"""g (float[1,2,3,3] x) => (float[N,M,K,L] y) <float[2,2,1,1] w = {{1, 2, 3, 4}}> {{
            y = {layer}
        }}"""
    )
    weight(model, "w", scale=np.float32([0.03, 0.05]), axis=axis, lo=-127)
    written = comes_back(model)
    (node,) = written.nodes(op)
    attrs = {"quant_min": -127, "quant_max": 127} if "Learnable" in op else {}
    assert node.attrs == attrs


def test_weights_on_a_tie_keep_their_codes() -> None:
    scale = np.random.default_rng(0).uniform(0.001, 0.1, 200).astype(np.float32)
    values = (np.float32([[-63.5, 31.5]]) * scale[:, None]).astype(np.float32)
    model = parse("g (float[3,200] x, float[200,2] w) => (float[3,2] y) { y = MatMul(x, w) }")
    proto = model.to_proto()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(values, "w"))
    del proto.graph.input[1]
    model = from_proto(proto)
    weight(model, "w", scale=scale, axis=0)
    written = comes_back(model)
    kept = constants.array(tensor(written, "w"))
    assert kept is not None
    assert not np.array_equal(kept, values), "no weight has a tie that the reciprocal moves"


def test_logarithmic_quantizers_are_written_too() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    model.refresh()
    insert(model, tensor(model, "x"), lambda x, y, g: fake_quantize_log.make(model, x, y, 2.5, g))
    written, _ = apply(model, ToMqbench())
    assert ops(written) == ["Constant", "NNIEQuantize", "Relu"]
    read, _ = apply(from_proto(written.to_proto()), ReadMqbench())
    assert_same_outputs(model, read)


@pytest.mark.parametrize("name", sorted(QDQ))
def test_zoo_comes_back(name: str) -> None:
    canonical, _ = apply(from_proto(ZOO[name]()), ReadQdq())
    found = [params_of(node) for node in canonical.nodes(FAKE_QUANTIZE)]
    if any(p.block or p.qtype.floating for p in found):
        with pytest.raises(PassError, match="cannot be written"):
            apply(canonical, ToMqbench())
        return
    comes_back(canonical)


@SETTINGS
@given(canonical_models())
def test_random_canonical_graphs_come_back(found: Canonical) -> None:
    comes_back(found.model)


@SETTINGS
@given(qdq_graphs())
def test_random_quantized_graphs_come_back(proto: onnx.ModelProto) -> None:
    """Signed types without negative codes too: the type is stated beside the node."""
    comes_back(apply(from_proto(proto), ReadQdq())[0])


def test_bias_rows_stay() -> None:
    canonical, _ = apply(from_proto(ZOO["qdq_uint8_stored_int32_bias"]()), ReadQdq())
    rows = canonical.qparams.of(Role.BIAS)
    assert rows
    written, _ = apply(canonical, ToMqbench())
    assert from_proto(written.to_proto()).qparams.of(Role.BIAS) == rows


def test_blocks_are_refused_by_name() -> None:
    canonical, _ = apply(from_proto(ZOO["qdq_int4_blocked"]()), ReadQdq())
    with pytest.raises(PassError, match=r"weight\): it has one scale per block"):
        apply(canonical, ToMqbench())
