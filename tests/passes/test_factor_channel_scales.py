from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import OnnxqError
from onnxq.graph import Model
from onnxq.pipeline import Pipeline
from onnxq.running import sessions
from onnxq.workflows.convert import convert
from passes.factor_channel_scales import FactorChannelScales
from passes.to_qdq import ToQdq
from tests.models.build import apply, bit_equal, ops, parse, quantize, reasons, run, tensor, weight

# Operator, shapes of data and result.
LAYERS = {
    "Conv": ("Conv(x, w)", "2,6,5,5", "2,4,3,3", (4, 6, 3, 3)),
    "depthwise": ("Conv<group=6>(x, w)", "2,6,5,5", "2,6,3,3", (6, 1, 3, 3)),
    "MatMul": ("MatMul(x, w)", "4,6", "4,5", (6, 5)),
    "Add": ("Add(x, w)", "2,6,5,5", "2,6,5,5", (6, 1, 1)),
    "Mul": ("Mul(x, w)", "2,6,5,5", "2,6,5,5", (6, 1, 1)),
    "AveragePool": ("AveragePool<kernel_shape=[2,2]>(x)", "2,6,5,5", "2,6,4,4", None),
    "GlobalAveragePool": ("GlobalAveragePool(x)", "2,6,5,5", "2,6,1,1", None),
    "Sigmoid": ("Sigmoid(x)", "2,6,5,5", "2,6,5,5", None),
    "LeakyRelu": ("LeakyRelu(x)", "2,6,5,5", "2,6,5,5", None),
    "Softmax": ("Softmax<axis=3>(x)", "2,6,5,5", "2,6,5,5", None),
}
ENDS = {"reads": ("x",), "writes": ("y",), "reads and writes": ("x", "y")}


def per_channel(model: Model, name: str, size: int, zeros: str) -> None:
    rng = np.random.default_rng(size)
    quantize(
        model,
        name,
        qtype="uint8",
        scale=rng.uniform(0.003, 0.05, size).astype(np.float32),
        zero_point=np.full(size, 128) if zeros == "equal" else rng.integers(60, 200, size),
        axis=1,
    )


def layer(name: str, ends: tuple[str, ...], zeros: str = "equal") -> Model:
    op, data, result, shape = LAYERS[name]
    held = ""
    if shape is not None:
        values = np.random.default_rng(0).normal(size=shape).round(3).reshape(-1)
        held = f"<float[{','.join(map(str, shape))}] w = {{{', '.join(map(str, values))}}}>"
    model = parse(f"g (float[{data}] x) => (float[{result}] y) {held} {{ y = {op} }}")
    if shape is not None:
        weight(model, "w", qtype="uint8", scale=np.float32(0.02), zero_point=128)
    for end, sizes in (("x", data), ("y", result)):
        if end in ends:
            per_channel(model, end, int(sizes.split(",")[1]), zeros)
        else:
            quantize(model, end, qtype="uint8", scale=np.float32(0.03), zero_point=128)
    return model


def data(name: str) -> np.ndarray:
    shape = [int(size) for size in LAYERS[name][1].split(",")]
    return 2 * np.random.default_rng(1).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("zeros", ["equal", "other"])
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("name", LAYERS)
def test_the_same_bits_in_both_sessions(name: str, ends: tuple[str, ...], zeros: str) -> None:
    model = layer(name, ends, zeros)
    made, trace = apply(model, FactorChannelScales())
    assert len(trace.rewrites) == 1  # what reads the first is in float then, and fused no more
    want = run(model, data(name))
    assert bit_equal(run(made, data(name)), want)
    written = Pipeline(FactorChannelScales(), ToQdq(opset=13)).run(model).model
    got = sessions.deployed(written).run({"x": data(name)})
    assert bit_equal(got.values(), want)  # nothing is fused


@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("name", LAYERS)
def test_onnxruntime_still_fuses_scales_per_channel(name: str, ends: tuple[str, ...]) -> None:
    """The pass can go once this fails for every operator."""
    model = layer(name, ends)
    want = run(model, data(name))
    written = Pipeline(ToQdq(opset=13)).run(model).model
    try:
        session = sessions.shipped(written)
        got = list(session.run({"x": data(name)}).values())
    except OnnxqError:
        return
    assert not bit_equal(got, want)


def test_convert_proves_it() -> None:
    done = convert(layer("Conv", ("x", "y")), "onnxruntime", data={"x": data("Conv")})
    assert done.proven
    assert [proof.report.worst.max for proof in done.proofs if proof.report.worst] == [0, 0]
    assert not [f for f in done.findings if f.severity == "error"]
    assert done.change is None
    again = convert(
        layer("Conv", ("x", "y")), "onnxruntime", variant="qoperator", data={"x": data("Conv")}
    )
    assert again.proven


def test_equal_zero_points_leave_one_scale() -> None:
    made, _ = apply(layer("Sigmoid", ("x",)), FactorChannelScales())
    assert ops(made).count("Div") == ops(made).count("Mul") == 1
    found = [params_of(node) for node in made.nodes(FAKE_QUANTIZE)]
    assert [p.axis for p in found] == [None, None]
    assert [float(p.scale) for p in found if p.tensor != "y.raw"] == [1.0]


@pytest.mark.parametrize(
    "op", ["MaxPool<kernel_shape=[2,2]>(x)", "Neg(x)", "Transpose<perm=[0,2,3,1]>(x)", "Exp(x)"]
)
def test_what_is_not_fused_stays(op: str) -> None:
    model = parse(f"g (float[1,6,5,5] x) => (float y) {{ y = {op} }}")
    per_channel(model, "x", 6, "equal")
    assert not apply(model, FactorChannelScales())[1].rewrites


def test_an_operator_with_a_float_operand_is_not_fused() -> None:
    model = parse("g (float[1,6] x, float[1,6] f) => (float[1,6] y) { y = Add(x, f) }")
    per_channel(model, "x", 6, "equal")
    assert not apply(model, FactorChannelScales())[1].rewrites


def test_weights_stay() -> None:
    values = ", ".join(["0.5"] * 18)
    model = parse(
        f"g (float[2,6] x) => (float[2,3] y) <float[6,3] w = {{{values}}}> {{ y = MatMul(x, w) }}"
    )
    quantize(model, "x")
    weight(model, "w", scale=np.float32([0.1, 0.2, 0.3]), zero_point=np.zeros(3, int), axis=1)
    quantize(model, "y")
    assert not apply(model, FactorChannelScales())[1].rewrites


def test_both_operands_of_a_product_of_activations() -> None:
    model = parse("g (float[1,4,6] x, float[1,6,6] b) => (float[1,4,6] y) { y = MatMul(x, b) }")
    quantize(model, "x", qtype="uint8", zero_point=128)
    per_channel(model, "b", 6, "equal")  # along the sum
    quantize(model, "y", qtype="uint8", zero_point=128)
    made, trace = apply(model, FactorChannelScales())
    assert len(trace.rewrites) == 1
    rng = np.random.default_rng(2)
    feeds = [rng.normal(size=s).astype(np.float32) for s in ((1, 4, 6), (1, 6, 6))]
    assert bit_equal(run(made, *feeds), run(model, *feeds))


def test_what_cannot_be_done_exactly_is_told() -> None:
    half = parse("g (float16[1,6] x) => (float16[1,6] y) { y = Sigmoid(x) }", opset=19)
    per_channel(half, "x", 6, "equal")
    made, trace = apply(half, FactorChannelScales())
    assert "which would round twice" in reasons(trace)
    assert "Div" not in ops(made)
    loose = parse("g (float x) => (float y) { y = Sigmoid(x) }")
    per_channel(loose, "x", 6, "equal")
    for name in ("x", "y"):
        tensor(loose, name).shape = None
    made, trace = apply(loose, FactorChannelScales())
    assert "rank of 'x' is not known" in reasons(trace)
    assert "Div" not in ops(made)
