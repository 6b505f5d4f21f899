"""Chains of per-channel constants fold into the layer before them; so do QAT training graphs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model, from_proto
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Pipeline
from onnxq.running import sessions
from passes.fold_affine import FoldAffine
from passes.fold_batch_norm import FoldBatchNorm
from passes.fold_constants import FoldConstants
from passes.lower_constants import LowerConstants
from passes.read_qdq import ReadQdq
from tests.checks.oracle import Floats, relative_error
from tests.models.build import apply, ops, parse, quantize, reasons, run, tensor, weight
from tests.models.strategies import graphs
from tests.models.zoo import FLOAT, HALF, ZOO, inputs
from tests.models.zoo_build import Build, channel_scale


def folded_equal(model: Model, *x: Floats, bound: float = 1e-6) -> tuple[Model, Trace]:
    folded, trace = apply(model, FoldAffine())
    for got, want in zip(run(folded, *x), run(model, *x), strict=True):
        assert got.dtype == want.dtype
        assert relative_error(got, want) <= bound
    assert all(s.reason for s in trace.skips)
    assert apply(folded, FoldAffine())[1].rewrites == []
    return folded, trace


@pytest.mark.parametrize("name", sorted(FLOAT))
def test_neutral_on_the_zoo(name: str) -> None:
    proto = ZOO[name]()
    bound = 2e-3 if name in HALF else 1e-6
    folded_equal(from_proto(proto), *inputs(proto).values(), bound=bound)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(proto=graphs())
def test_neutral_on_random_graphs(proto: onnx.ModelProto) -> None:
    folded_equal(from_proto(proto), *inputs(proto).values(), bound=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_any_chain_becomes_its_layer(data: st.DataObject, seed: int) -> None:
    """Against float64: random chains behind Conv, ConvTranspose, Gemm and MatMul."""
    b = Build(seed=seed)
    op = data.draw(st.sampled_from(["Conv", "ConvTranspose", "Gemm", "MatMul"]))
    dense = op in ("Gemm", "MatMul")
    x = b.random(*((2, 4) if dense else (2, 4, 3, 3)))
    w = b.random(*((4, 3) if dense else (4, 3, 1, 1) if op == "ConvTranspose" else (3, 4, 1, 1)))
    y = b.op(op, b.input("x", x.shape), b.init(w))
    axes = "nchw,cohw->nohw" if op == "ConvTranspose" else "nchw,ochw->nohw"
    data64, w64 = x.astype(np.float64), w.astype(np.float64)
    # A 1x1 kernel is a matrix product at every position.
    want = data64 @ w64 if dense else np.einsum(axes, data64, np.broadcast_to(
        w64, (*w.shape[:2], 3, 3)))  # fmt: skip
    shapes = [(), (1,), (3,), (1, 3)] if dense else [(), (1, 1, 1), (3, 1, 1), (1, 3, 1, 1)]
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["Mul", "Div", "Add", "Sub"]))
        shape = data.draw(st.sampled_from(shapes))
        count = int(np.prod(shape))
        sign = b.rng.choice([-1, 1], count)
        c = (b.rng.uniform(0.5, 2, count) * sign).reshape(shape).astype(np.float32)
        first = kind != "Div" and data.draw(st.booleans())
        y = b.op(kind, *((b.init(c), y) if first else (y, b.init(c))))
        c64 = c.astype(np.float64)
        function = {"Mul": np.multiply, "Div": np.divide, "Add": np.add, "Sub": np.subtract}[kind]
        want = function(c64, want) if first else function(want, c64)
    folded, trace = apply(from_proto(b.model(y)), FoldAffine())
    assert ops(folded) in ([op], [op, "Add"])
    assert ops(folded) == [op] or op == "MatMul"
    assert not trace.skips
    (got,) = run(folded, x)
    assert relative_error(got, want) <= 2e-6
    assert apply(folded, FoldAffine())[1].rewrites == []


# -- forms ------------------------------------------------------------------------------------

W = "float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] c = {2,-1,0.5}, float[3] d = {1,3,-2}"
X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def dense(*lines: str, outputs: str = "float[2,3] y") -> Model:
    text = "\n".join(lines)
    return parse(f"g (float[2,4] x) => ({outputs}) <{W}> {{ {text} }}")


def test_matmul_and_its_bias_are_left_alone() -> None:
    folded, trace = folded_equal(dense("p = MatMul(x, w)", "y = Add(c, p)"), X)
    assert not trace.rewrites
    assert not trace.skips
    assert ops(folded) == ["MatMul", "Add"]


def test_matmul_chain_ends_in_one_add() -> None:
    lines = ["p = MatMul(x, w)", "q = Mul(p, c)", "r = Sub(d, q)", "y = Add(r, c)"]
    folded, trace = folded_equal(dense(*lines), X)
    assert ops(folded) == ["MatMul", "Add"]
    assert len(trace.rewrites) == 3


def test_constant_over_the_result_is_declined() -> None:
    folded, trace = folded_equal(dense("p = MatMul(x, w)", "q = Mul(p, c)", "y = Div(c, q)"), X)
    assert ops(folded) == ["MatMul", "Div"]
    assert "divides a constant" in reasons(trace)


def test_the_chain_ends_where_somebody_else_reads() -> None:
    lines = ["p = Gemm(x, w)", "q = Mul(p, c)", "r = Add(q, d)", "s = Relu(q)", "y = Add(r, s)"]
    folded, trace = folded_equal(dense(*lines), X)
    assert ops(folded) == ["Gemm", "Add", "Relu", "Add"]
    assert "has another consumer" in reasons(trace)
    lines = ["p = Gemm(x, w)", "y = Mul(p, c)"]
    folded, trace = folded_equal(dense(*lines, outputs="float[2,3] y, float[2,3] p"), X)
    assert ops(folded) == ["Gemm", "Mul"]
    assert "is a graph output" in reasons(trace)


def test_squaring_and_residual_additions_are_no_business_of_this_pass() -> None:
    folded, trace = folded_equal(dense("p = MatMul(x, w)", "q = Mul(p, p)", "y = Add(q, p)"), X)
    assert ops(folded) == ["MatMul", "Mul", "Add"]
    assert not trace.skips


def test_a_chain_of_nothing_disappears() -> None:
    lines = ["o = Constant<value_float=1.0>()", "z = Constant<value_float=0.0>()"]
    lines += ["p = MatMul(x, w)", "q = Mul(p, o)", "y = Sub(q, z)"]
    folded, _ = folded_equal(dense(*lines), X)
    assert ops(folded) == ["MatMul"]
    assert folded.nodes("MatMul")[0].inputs[1].name == "w"


def test_division_by_zero_stays() -> None:
    lines = ["z = Constant<value_float=0.0>()", "p = MatMul(x, w)", "y = Div(p, z)"]
    folded, trace = apply(dense(*lines), FoldAffine())
    assert ops(folded) == ["Constant", "MatMul", "Div"]
    assert "not a finite number" in reasons(trace)


def test_inside_and_across_if_bodies() -> None:
    text = f"""g (bool f, float[2,4] x) => (float[2,3] y) <{W}> {{
        p = MatMul(x, w)
        y = If(f) <
            then_branch = t () => (float[2,3] a) {{ a = Mul(p, c) }},
            else_branch = e () => (float[2,3] b) {{ r = Gemm(x, w) b = Mul(r, d) }}
        >
    }}"""
    for flag in (True, False):
        folded, trace = folded_equal(parse(text), np.array(flag), X)
        assert len(trace.rewrites) == 2
        assert len(folded.nodes("Mul")) == 0


def test_half_precision_stays_half() -> None:
    b = Build(opset=21)
    x = b.input("x", [1, 3, 5, 5], onnx.TensorProto.FLOAT16)
    w = b.init(b.weight_values(4, 3, 3, 3).astype(np.float16))
    y = b.op("Mul", b.op("Conv", x, w), b.init(np.float16([2, 0.3, -1, 7]).reshape(4, 1, 1)))
    y = b.op("Add", y, b.init(np.float16(0.25)))
    model = from_proto(b.model(y))
    folded, _ = folded_equal(model, b.random(1, 3, 5, 5).astype(np.float16), bound=2e-3)
    assert ops(folded) == ["Conv"]
    assert {i.values.dtype for i in folded.nodes("Conv")[0].inputs[1:]} == {np.dtype(np.float16)}


def test_old_opsets_are_declined() -> None:
    model = dense("p = Gemm(x, w, c)", "y = Mul(p, d)")
    model.opsets[""] = 6
    trace = apply(model, FoldAffine())[1]
    assert "opset 6" in reasons(trace)


def test_activation_quantizer_ends_the_chain() -> None:
    model = quantize(dense("p = Gemm(x, w)", "q = Mul(p, c)", "y = Add(q, d)"), "q")
    folded, _ = folded_equal(model, X, bound=1e-5)
    assert ops(folded) == ["Gemm", "FakeQuantize", "Add"]


# -- the training form of quantization-aware training -----------------------------------------


def training_form(style: str, form: str, negative: bool, seed: int = 0) -> Model:
    """Conv(FakeQuantize(W * f)) -> Div f or Mul 1/f -> Add b -> BN; f as torch computes it."""
    b = Build(opset=17, seed=seed)
    gamma = b.rng.uniform(0.2, 2, 4).astype(np.float32)
    if negative:
        gamma[1] *= -1
    beta, mean = b.random(4), b.random(4)
    var = b.rng.uniform(0.01, 3, 4).astype(np.float32)
    factor = gamma / np.sqrt(var + np.float32(1e-5))
    w = b.weight_values(4, 3, 3, 3)
    scaled = b.op("Mul", b.init(w), b.init(factor.reshape(-1, 1, 1, 1)), out="wf")
    y = b.op("Conv", b.input("x", [2, 3, 6, 6]), scaled, pads=[1] * 4)

    def per_channel(value: Floats) -> str:
        if form == "reshape":
            return b.op("Reshape", b.init(value), b.ints(1, -1, 1, 1))
        if form == "unsqueeze":
            return b.op("Unsqueeze", b.init(value), b.ints(1, 2))
        return b.init(value.reshape(1, -1, 1, 1))

    if style == "div":
        y = b.op("Div", y, per_channel(factor))
    else:
        y = b.op("Mul", y, per_channel(1 / factor))
    y = b.op("Add", y, per_channel(b.random(4)))
    stats = [b.init(v) for v in (gamma, beta, mean, var)]
    y = b.op("Relu", b.op("BatchNormalization", y, *stats, epsilon=1e-5))
    model = from_proto(b.model(y))
    product = w * factor.reshape(-1, 1, 1, 1)
    return weight(model, "wf", scale=channel_scale(product, 0), axis=0, lo=-127, zero_point=[0] * 4)


def weight_codes(model: Model, x: Floats) -> tuple[Floats, Floats]:
    """Codes of the only weight, from what its quantizer makes in onnxruntime, and its scale."""
    (node,) = model.nodes(FAKE_QUANTIZE)
    params = params_of(node)
    name = node.outputs[0].name
    made = sessions.reference(model, taps=[name]).run({"x": x}, only=[name])[name]
    return params.quantize(made), params.scale


ORDERS: dict[str, tuple[Pass, ...]] = {
    "alone": (FoldAffine(),),
    "constants first": (LowerConstants(), FoldConstants(), FoldAffine()),
    "constants last": (FoldAffine(), LowerConstants(), FoldConstants()),
    "batch norm first": (FoldBatchNorm(), FoldAffine()),
    "batch norm last": (FoldAffine(), FoldBatchNorm()),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("style", ["div", "mul"])
@pytest.mark.parametrize("form", ["constant", "reshape", "unsqueeze"])
@pytest.mark.parametrize("negative", [False, True])
def test_training_form(order: str, style: str, form: str, negative: bool) -> None:
    model = training_form(style, form, negative)
    x = inputs(model.to_proto())["x"]
    folded = Pipeline(*ORDERS[order]).run(model).model
    assert ops(folded) == ["FakeQuantize", "Conv", "Relu"]
    before, after = weight_codes(model, x), weight_codes(folded, x)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1], before[1], "the trained scale stays bit for bit")
    assert relative_error(run(folded, x)[0], run(model, x)[0]) <= 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**20), style=st.sampled_from(["div", "mul"]))
def test_trained_scales_stay_for_all_statistics(seed: int, style: str) -> None:
    """Rounding of f, of 1/f and of the square root stays below the 4 ulp taken for 1."""
    model = training_form(style, "constant", negative=True, seed=seed)
    (old,) = model.nodes(FAKE_QUANTIZE)
    scale = params_of(old).scale
    folded, _ = apply(model, FoldAffine())
    (node,) = folded.nodes(FAKE_QUANTIZE)
    np.testing.assert_array_equal(params_of(node).scale, scale)
    # W * f is a constant now, the one the runtime made.
    product = sessions.reference(model, taps=["wf"]).run(inputs(model.to_proto()), only=["wf"])[
        "wf"
    ]
    np.testing.assert_array_equal(node.inputs[0].values, product)


def test_a_gain_5_ulp_from_1_is_not_taken_for_1() -> None:
    for ulps, kept in ((4, True), (6, False)):
        model = dense("p = MatMul(x, w)", f"k = Constant<value_float={1 + ulps * 2**-23!r}>()",
                      "y = Mul(p, k)")  # fmt: skip
        folded, _ = apply(model, FoldAffine())
        assert ops(folded) == ["MatMul"]
        assert (folded.nodes("MatMul")[0].inputs[1].name == "w") == kept


def test_other_gains_rescale_and_keep_the_codes() -> None:
    b = Build(seed=4)
    w = b.weight_values(4, 3, 3, 3)
    y = b.op("Conv", b.input("x", [1, 3, 5, 5]), b.init(w, "w"), b.init(b.random(4)))
    y = b.op("Mul", y, b.init(np.float32([2, -3, 0, 0.1]).reshape(4, 1, 1)))
    y = b.op("Sub", b.init(np.float32([1, 2, 3, 4]).reshape(4, 1, 1)), y)
    model = weight(
        from_proto(b.model(y)), "w", scale=channel_scale(w, 0), axis=0, lo=-127, zero_point=[0] * 4
    )
    x = inputs(model.to_proto())["x"]
    folded, _ = folded_equal(model, x)
    assert ops(folded) == ["FakeQuantize", "Conv"]
    (old_codes, old_scale), (codes, scale) = weight_codes(model, x), weight_codes(folded, x)
    sign = np.array([-1, 1, 0, -1]).reshape(4, 1, 1, 1)
    np.testing.assert_array_equal(codes, old_codes * sign)
    np.testing.assert_allclose(scale, old_scale * [2, 3, 1, 0.1], rtol=1e-7)


def test_quantizer_with_a_scale_known_at_run_time_only() -> None:
    model = weight(dense("p = MatMul(x, w)", "y = Mul(p, c)"), "w")
    (node,) = model.nodes(FAKE_QUANTIZE)
    node.inputs[1] = tensor(model, "x")
    trace = Trace("fold-affine")
    FoldAffine().run(model, trace)
    assert "scale or zero point 'x'" in reasons(trace)


def test_spelled_out_training_graph_of_the_zoo() -> None:
    """f is computed in the graph: the constants are folded first, then the chain."""
    proto = ZOO["qdq_qat_training_form"]()
    canonical = Pipeline(ReadQdq()).run(from_proto(proto)).model
    steps = (LowerConstants(), FoldConstants(), FoldBatchNorm(), FoldAffine())
    folded = Pipeline(*steps).run(canonical).model
    assert not folded.nodes("BatchNormalization", "Div", "Add", "Mul")
    (x,) = inputs(proto).values()
    step = float(params_of(folded.nodes(FAKE_QUANTIZE)[-1]).scale)
    difference = np.abs(run(folded, x)[0] - run(canonical, x)[0])
    # The result is quantized: float rounding may move a value by one step, and moves few.
    assert difference.max() <= step * 1.001
    assert (difference > 0).mean() < 0.01
