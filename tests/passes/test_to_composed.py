"""The canonical form as elementary operators: the same numbers, and the way back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import PassError
from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions
from passes.collect_qparams import CollectQParams
from passes.infer_shapes import InferShapes
from passes.read_composed import ReadComposed
from passes.read_qdq import ReadQdq
from passes.to_composed import ToComposed
from tests.models.build import apply, bit_equal, ops, parse, quantize, run, weight
from tests.models.canonical import Canonical, assert_same_outputs, canonical_models
from tests.models.strategies import QArrays, qdq_graphs, qparams_arrays
from tests.models.zoo import QDQ, ZOO, inputs

SETTINGS = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def table(model: Model) -> list[QParams]:
    return list(apply(model, CollectQParams())[0].qparams)


def test_one_quantizer_is_six_operators() -> None:
    model = quantize(parse("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }"), "x", lo=-127)
    written, trace = apply(model, ToComposed())
    assert ops(written) == ["Div", "Round", "Add", "Clip", "Sub", "Mul", "Relu"]
    assert len(trace.rewrites) == 1
    assert not written.to_proto().functions


@settings(max_examples=60, deadline=None, derandomize=True)
@given(qparams_arrays())
def test_numbers_are_the_same_bit_for_bit_and_the_grid_comes_back(arrays: QArrays) -> None:
    """All types and ranges, signed ones without negative codes too; ties, huge values, -0."""
    dims = ",".join(map(str, arrays.x.shape))
    model = parse(f"g (float[{dims}] x) => (float[{dims}] y) {{ y = Identity(x) }}", 21, 10)
    kind = qtype(np.dtype(arrays.zero_point.dtype)).name
    fields = {"scale": arrays.scale, "zero_point": arrays.zero_point, "axis": arrays.axis}
    quantize(model, "x", qtype=kind, lo=arrays.lo, hi=arrays.hi, **fields)
    written, _ = apply(model, ToComposed())
    assert bit_equal(run(model, arrays.x), run(written, arrays.x))
    read, trace = apply(written, ReadComposed())
    assert (trace.skips, trace.notes) == ([], [])
    assert table(read) == table(model)


@pytest.mark.parametrize("name", sorted(QDQ))
def test_zoo_comes_back(name: str) -> None:
    proto = ZOO[name]()
    canonical, _ = apply(from_proto(proto), ReadQdq(), InferShapes())
    found = [params_of(node) for node in canonical.nodes(FAKE_QUANTIZE)]
    half = any(n.inputs[1].dtype == np.float16 for n in canonical.nodes(FAKE_QUANTIZE))
    if half or any(p.block or p.qtype.floating for p in found):
        with pytest.raises(PassError, match="cannot be written"):
            apply(canonical, ToComposed())
        return
    written, _ = apply(canonical, ToComposed())
    read, _ = apply(written, ReadComposed())
    assert table(read) == table(canonical)
    feeds = inputs(proto)
    want = sessions.reference(canonical).run(feeds).values()
    assert bit_equal(sessions.reference(written).run(feeds).values(), want)
    assert bit_equal(sessions.reference(read).run(feeds).values(), want)


@SETTINGS
@given(canonical_models())
def test_random_canonical_graphs_come_back(found: Canonical) -> None:
    written, _ = apply(found.model, ToComposed())
    read, _ = apply(written, ReadComposed())
    assert table(read) == table(found.model)
    assert_same_outputs(found.model, written)
    assert_same_outputs(found.model, read)


@SETTINGS
@given(qdq_graphs())
def test_random_quantized_graphs_come_back(proto: onnx.ModelProto) -> None:
    canonical, _ = apply(from_proto(proto), ReadQdq(), InferShapes())
    written, _ = apply(canonical, ToComposed())
    read, _ = apply(written, ReadComposed())
    assert table(read) == table(canonical)
    assert_same_outputs(canonical, read)


def test_bias_rows_stay() -> None:
    canonical, _ = apply(from_proto(ZOO["qdq_uint8_stored_int32_bias"]()), ReadQdq())
    rows = canonical.qparams.of(Role.BIAS)
    assert rows
    written, _ = apply(canonical, ToComposed())
    assert from_proto(written.to_proto()).qparams.of(Role.BIAS) == rows


def test_everything_without_a_spelling_is_refused_at_once() -> None:
    model = parse(
        """g (float[4,8] x, float[N] u) => (float[4,2] y, float[M] v)
        <float[8,2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}> {
            y = MatMul(x, w)
            r = Identity(u)
            v = Relu(r)
        }""",
        21,
        10,
    )
    weight(model, "w", scale=np.ones((2, 2), np.float32), axis=0, block=4)
    quantize(model, "r", scale=np.ones(3, np.float32), axis=0)
    with pytest.raises(PassError) as error:
        apply(model, ToComposed())
    assert "'w' (weight): it has one scale per block" in str(error.value)
    assert "'r' (activation): its rank is unknown" in str(error.value)


def test_float16_is_refused_by_name() -> None:
    model = parse("g (float16[4] x) => (float16[4] y) { y = Relu(x) }", 19, 9)
    quantize(model, "x", scale=np.float32(0.5))
    with pytest.raises(PassError, match=r"'x' \(activation\): it is float16"):
        apply(model, ToComposed())
