"""What onnxruntime refuses, runs in float, or quantizes by itself."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxq.errors import OnnxqError
from onnxq.graph import from_proto
from onnxq.running.sessions import reference, shipped
from onnxq.workflows.convert import convert
from tests.models.lint_cases import INT8, UINT8, conv_net, found
from tests.models.zoo_build import Build

INT16 = TensorProto.INT16
VARIANTS = (None, "int32-bias")


def test_a_float_layer_is_named_with_reason_and_fix() -> None:
    (finding,) = found(conv_net(relu_zero=128), "runs-in-float")
    assert finding.severity == "warning"
    assert "(Conv)" in finding.where
    assert "its Relu stays" in finding.message
    assert "lowest code" in finding.fix


def test_operators_that_never_fuse_are_only_mentioned() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4]), 0.1, 128, UINT8)
    proto = b.model(b.qdq(b.op("Tanh", x), 0.1, 128, UINT8))
    (finding,) = found(proto, "runs-in-float")
    assert finding.severity == "info"
    assert "no integer kernel for Tanh" in finding.message


def test_fused_layers_are_not_mentioned() -> None:
    assert found(conv_net(), "runs-in-float") == []


def test_what_onnxruntime_refuses_is_an_error() -> None:
    b = Build(21)
    x = b.qdq(b.input("x", [1, 4, 6]), 0.1, 0, INT8)
    proto = b.model(b.op("Neg", b.op("Transpose", x, perm=[0, 2, 1])))
    (finding,) = found(proto, "onnxruntime-refuses")
    assert finding.severity == "error"
    assert "(Transpose)" in finding.where
    with pytest.raises(OnnxqError):
        shipped(proto)


def test_what_fails_only_when_it_runs_is_an_error() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), np.full(4, 0.1), 128, UINT8, axis=1)
    weight = b.stored(b.weight_values(4, 4, 3, 3), 0.01)
    proto = b.model(b.qdq(b.op("Conv", x, weight), 0.1, 128, UINT8))
    (finding,) = found(proto, "onnxruntime-refuses")
    assert "one scale per channel to QLinearConv" in finding.message
    with pytest.raises(OnnxqError):
        shipped(proto).run({"x": np.zeros((1, 4, 6, 6), np.float32)})


def biased(
    op: str, steps: float, *, wide: bool, quantized: bool = True, channels: bool = False
) -> onnx.ModelProto:
    """A layer whose first bias is `steps` times input scale * weight scale."""
    b = Build(21, seed=4)
    kind, zero, sx = (INT16, 0, 2.0**-15) if wide else (UINT8, 128, 2.0**-6)
    sw = np.float32([2.0**-30, 2.0**-12, 2.0**-12]) if channels else np.float32(2.0**-20)
    x = b.qdq(b.input("x", [2, 3] if op == "Gemm" else [2, 3, 5, 5]), sx, zero, kind)
    shape = (3, 3) if op == "Gemm" else (3, 3, 1, 1)
    axis = {"Gemm": 1, "Conv": 0, "ConvTranspose": 1}[op]
    where = axis if channels else None
    weight = b.stored(np.zeros(shape, np.float32), sw, axis=where)
    step = np.float32(sx) * sw.reshape(-1)
    bias = np.float32([steps, 100, -7]) * step
    y = b.op(op, x, weight, b.init(bias, "bias"), out="layer")
    return b.model(b.qdq(y, float(np.abs(bias).max()) / 100, zero, kind) if quantized else y)


def _lost(proto: onnx.ModelProto) -> bool:
    """Whether onnxruntime's default session computes something else than the model says."""
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.zeros(shape, np.float32)}
    (wanted,), (got,) = (session(proto).run(feeds).values() for session in (reference, shipped))
    return bool(np.abs(wanted - got).max() > np.abs(wanted).max() / 2)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm"])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("steps", "lost"),
    [(2.0**33, True), (2.0**31 - 128, False), (-(2.0**31), False), (-(2.0**33), True)],
)
def test_a_bias_that_int32_does_not_hold(op: str, wide: bool, steps: float, lost: bool) -> None:
    proto = biased(op, steps, wide=wide)
    findings = found(proto, "onnxruntime-refuses")
    assert _lost(proto) is lost
    assert bool(findings) is lost
    for finding in findings:
        assert finding.severity == "error"
        assert f"channel 0 has {abs(steps):,.0f} of them" in finding.message
        assert ("--variant int32-bias" in finding.fix) is wide


def test_the_first_code_that_int32_lacks_is_told() -> None:
    assert found(biased("Conv", 2.0**31, wide=True), "onnxruntime-refuses")
    assert found(biased("Conv", -(2.0**31) - 256, wide=True), "onnxruntime-refuses")


def test_channels_without_a_weight_lose_their_bias() -> None:
    proto = biased("Conv", 2.0**33, wide=False, channels=True)
    (finding,) = found(proto, "onnxruntime-refuses")
    assert "channel 0" in finding.message
    assert "larger scale" in finding.fix
    assert _lost(proto)


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_bias_in_front_of_a_float_result_is_left_alone(op: str) -> None:
    proto = biased(op, 2.0**33, wide=True, quantized=False)
    assert found(proto, "onnxruntime-refuses") == []
    assert not _lost(proto)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm"])
@pytest.mark.parametrize("channels", [False, True])
def test_the_variant_that_lint_names_mends_it(op: str, channels: bool) -> None:
    proto = biased(op, 2.0**33, wide=True, channels=channels)
    plain, mended = (convert(from_proto(proto), "onnxruntime", variant=v) for v in VARIANTS)
    if not (op == "ConvTranspose" and channels):  # onnxruntime looks at the other axis there
        assert not plain.proven
        assert any("int32-bias" in f.fix for f in plain.findings)
    assert mended.proven
    assert not any(f.rule == "onnxruntime-refuses" for f in mended.findings)
    assert all(o.max == 0 for p in mended.proofs for o in p.report.outputs)


def test_a_float_weight_that_onnxruntime_rounds_is_told() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.1, 128, UINT8)
    y = b.op("Conv", x, b.init(b.weight_values(4, 4, 3, 3)))
    (finding,) = found(b.model(b.qdq(y, 0.1, 128, UINT8)), "weight-requantized")
    assert finding.severity == "warning"
    assert "rounds the weight to int8 itself" in finding.message


def test_a_pair_without_parameters_is_refused_rather_than_a_crash() -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [2, 4]), 0.1, 128, UINT8)
    weight = b.stored(b.weight_values(4, 3), 0.01)
    proto = b.model(b.qdq(b.op("Gemm", x, weight, b.init(b.random(3))), 0.1, 128, UINT8))
    for node in proto.graph.node:
        if node.output[0] == x:
            del node.input[1:]
    (finding,) = found(proto, "onnxruntime-refuses")
    assert finding.severity == "error"
    assert "DequantizeLinear" in finding.where
    assert "onnxq-node" not in finding.message
