"""BatchNormalization folds into the layer in front, else behind, and through quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model, from_proto
from onnxq.running import sessions
from passes.fold_batch_norm import FoldBatchNorm
from tests.checks.oracle import Floats, conv64, relative_error
from tests.models.build import apply, ops, parse, quantize, reasons, run, weight
from tests.models.strategies import graphs
from tests.models.zoo import BATCH_NORM, HALF, ZOO, inputs
from tests.models.zoo_build import Build, channel_scale


def check_neutral(proto: onnx.ModelProto, bound: float) -> Model:
    """Folded once it computes the same; folded twice nothing happens."""
    feeds = inputs(proto)
    folded, trace = apply(from_proto(proto), FoldBatchNorm())
    before, after = sessions.reference(proto).run(feeds), sessions.reference(folded).run(feeds)
    assert list(before) == list(after)
    for name, want in before.items():
        assert after[name].dtype == want.dtype
        assert relative_error(after[name], want) <= bound, name
    assert all(s.reason for s in trace.skips)
    assert len(folded.nodes("BatchNormalization")) == len(trace.skips), (
        "every BatchNormalization is folded or explained"
    )
    assert apply(folded, FoldBatchNorm())[1].rewrites == []
    return folded


@pytest.mark.parametrize("name", sorted(BATCH_NORM))
def test_neutral_on_the_zoo(name: str) -> None:
    check_neutral(ZOO[name](), 2e-3 if name in HALF else 1e-6)


FIXED = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@settings(FIXED, max_examples=60)
@given(proto=graphs())
def test_neutral_on_random_graphs(proto: onnx.ModelProto) -> None:
    check_neutral(proto, 1e-5)


ALL_FOLDED = {
    *("conv_bn_chain", "residual", "depthwise_separable", "grouped_conv_bn", "conv_transpose_bn"),
    *("conv_transpose_groups_bn", "conv_transpose_depthwise_bn", "conv1d_bn", "conv3d_bn"),
    *("gemm_bn", "matmul_bn", "bn_before_conv", "bn_negative_zero_gamma", "shared_weight_one_bn"),
    *("weight_behind_identity", "weight_behind_cast", "weight_behind_constant"),
    *("one_element_bias", "if_outer_weights"),
}


@pytest.mark.parametrize("name", sorted(ALL_FOLDED))
def test_nothing_is_left(name: str) -> None:
    folded, trace = apply(from_proto(ZOO[name]()), FoldBatchNorm())
    assert not folded.nodes("BatchNormalization")
    assert trace.rewrites
    assert not trace.skips


# -- against float64 --------------------------------------------------------------------------


@settings(FIXED, max_examples=40)
@given(
    seed=st.integers(0, 2**16),
    groups=st.sampled_from([1, 2, 4]),
    pad=st.integers(0, 1),
    biased=st.booleans(),
)
def test_conv_against_float64(seed: int, groups: int, pad: int, biased: bool) -> None:
    b = Build(seed=seed)
    x, w, bias = b.random(2, 4, 5, 5), b.random(8, 4 // groups, 3, 3), b.random(8)
    stats = [b.rng.choice([-1.5, -0.2, 0.0, 0.7, 1.3], 8), b.random(8), b.random(8)]
    stats = [np.asarray(s, np.float32) for s in (*stats, b.rng.uniform(1e-3, 4, 8))]
    args = [b.input("x", x.shape), b.init(w), *([b.init(bias)] if biased else [])]
    y = b.op("Conv", *args, group=groups, pads=[pad] * 4)
    y = b.op("BatchNormalization", y, *(b.init(s) for s in stats), epsilon=1e-3)
    folded, _ = apply(from_proto(b.model(y)), FoldBatchNorm())
    assert ops(folded) == ["Conv"]
    gamma, beta, mean, var = (s.astype(np.float64).reshape(-1, 1, 1) for s in stats)
    want = conv64(x, w, bias if biased else np.zeros(8), groups, pad)
    want = (want - mean) / np.sqrt(var + float(np.float32(1e-3))) * gamma + beta
    (got,) = run(folded, x)
    # One rounding of the weights and float32 sums of 36 products.
    assert relative_error(got, want) <= 1e-6
    for channel in np.flatnonzero(stats[0] == 0):
        np.testing.assert_array_equal(got[:, channel], stats[1][channel])


# -- forms ------------------------------------------------------------------------------------

STATS = "float[3] s = {2,-1,0.5}, float[3] b = {1,2,3}, float[3] m = {1,0,-1}, float[3] v = {1,4,2}"
W = "float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}"
X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)


def folded_equal(model: Model, *x: Floats) -> tuple[Model, Any]:
    folded, trace = apply(model, FoldBatchNorm())
    for got, want in zip(run(folded, *x), run(model, *x), strict=True):
        assert relative_error(got, want) <= 1e-6
    return folded, trace


def test_matmul_gets_an_add() -> None:
    model = parse(f"""g (float[2,4] x) => (float[2,3] y) <{W}, {STATS}> {{
        p = MatMul(x, w)
        y = BatchNormalization(p, s, b, m, v)
    }}""")
    folded, _ = folded_equal(model, X)
    assert ops(folded) == ["MatMul", "Add"]


def test_matmul_whose_shift_is_zero_gets_none() -> None:
    zero = "float[3] z = {0,0,0}"
    model = parse(f"""g (float[2,4] x) => (float[2,3] y) <{W}, {STATS}, {zero}> {{
        p = MatMul(x, w)
        y = BatchNormalization(p, s, z, z, v)
    }}""")
    folded, _ = folded_equal(model, X)
    assert ops(folded) == ["MatMul"]


def test_matmul_with_bias_keeps_one_add() -> None:
    model = parse(f"""g (float[2,4] x) => (float[2,3] y) <{W}, float[3] c = {{1,2,3}}, {STATS}> {{
        p = MatMul(x, w)
        q = Add(c, p)
        r = BatchNormalization(q, s, b, m, v)
        y = Relu(r)
    }}""")
    folded, _ = folded_equal(model, X)
    assert ops(folded) == ["MatMul", "Add", "Relu"]


def test_matmul_of_unknown_rank_names_the_pass_that_finds_it() -> None:
    model = parse(f"""g (float[2,4] x) => (float[2,3] z) <{W}, {STATS}> {{
        r = Relu(x)
        p = MatMul(r, w)
        y = BatchNormalization(p, s, b, m, v)
        z = Relu(y)
    }}""")
    _, trace = folded_equal(model, X)
    assert "run 'infer-shapes' first" in reasons(trace)


@pytest.mark.parametrize("shape", ["", "[1]", "[3]", "[1,3]"])
def test_gemm_with_alpha_beta_and_broadcast_bias(shape: str) -> None:
    values = "5" if shape in ("", "[1]") else "1,2,3"
    bias = f"float{shape} c = {{{values}}}"
    model = parse(f"""g (float[2,4] x) => (float[2,3] y) <{W}, {bias}, {STATS}> {{
        p = Gemm<alpha=0.5, beta=-2.0>(x, w, c)
        y = BatchNormalization(p, s, b, m, v)
    }}""")
    folded, _ = folded_equal(model, X)
    assert ops(folded) == ["Gemm"]


def test_gemm_bias_over_rows_stays() -> None:
    model = parse(f"""g (float[2,4] x) => (float[2,3] y) <{W}, float[2,1] c = {{1,2}}, {STATS}> {{
        p = Gemm(x, w, c)
        y = BatchNormalization(p, s, b, m, v)
    }}""")
    folded, trace = folded_equal(model, X)
    assert ops(folded) == ["Gemm", "BatchNormalization"]
    assert "bias 'c'" in reasons(trace)


@pytest.mark.parametrize(
    ("layer", "wt", "want"),
    [
        ("MatMul(n, w)", "[3,2] w = {1,2,3,4,5,6}", ["MatMul", "Add"]),
        ("Gemm<alpha=0.5>(n, w)", "[3,2] w = {1,2,3,4,5,6}", ["Gemm"]),
        ("Gemm<transB=1>(n, w)", "[2,3] w = {1,2,3,4,5,6}", ["Gemm"]),
        ("Gemm<transA=1>(n, w)", "[2,2] w = {1,2,3,4}", ["BatchNormalization", "Gemm"]),
    ],
)
def test_in_front_of_a_dense_layer(layer: str, wt: str, want: list[str]) -> None:
    out = "3,2" if "transA" in layer else "2,2"
    model = parse(f"""g (float[2,3] x) => (float[{out}] y) <float{wt}, {STATS}> {{
        n = BatchNormalization(x, s, b, m, v)
        y = {layer}
    }}""")
    folded, trace = folded_equal(model, X[:, :3])
    assert ops(folded) == want
    assert bool(trace.skips) == (len(want) == 2 and want[0] == "BatchNormalization")


def test_in_front_of_a_matmul_with_bias() -> None:
    model = parse(f"""g (float[2,3] x) => (float[2,2] y, float[2,2] p)
    <float[3,2] w = {{1,2,3,4,5,6}}, float[2] c = {{1,2}}, {STATS}> {{
        n = BatchNormalization(x, s, b, m, v)
        p = MatMul(n, w)
        y = Add(p, c)
    }}""")
    folded, _ = folded_equal(model, X[:, :3])  # p is a graph output: it needs an Add of its own
    assert ops(folded) == ["MatMul", "Add", "Add"]
    del model.graph.outputs[1]
    folded, _ = folded_equal(model, X[:, :3])
    assert ops(folded) == ["MatMul", "Add"]


def conv_net(*middle: str, pads: str = "0,0,0,0") -> Model:
    """Lines of ONNX text between x and y, with 3-channel Conv constants w (3x3) and u (1x1)."""
    rng = np.random.default_rng(1)
    big, small = (",".join(map(str, rng.standard_normal(n).round(3))) for n in (81, 9))
    lines = "\n".join(middle).replace("PADS", f"pads=[{pads}]")
    return parse(f"""g (float[1,3,5,5] x) => (float[1,3,H,V] y)
    <float[3,3,3,3] w = {{{big}}}, float[3,3,1,1] u = {{{small}}}, {STATS}> {{ {lines} }}""")


IMAGE = np.random.default_rng(2).standard_normal((1, 3, 5, 5)).astype(np.float32)
NORM = "BatchNormalization({}, s, b, m, v)"


def test_the_layer_before_it_is_preferred() -> None:
    model = conv_net("p = Conv(x, u)", f"n = {NORM.format('p')}", "y = Conv(n, w)")
    folded, trace = folded_equal(model, IMAGE)
    first, second = folded.nodes("Conv")
    assert len(first.inputs) == 3
    assert len(second.inputs) == 2
    assert "after it" not in trace.rewrites[0]


def test_two_in_a_row_fold_both_ways() -> None:
    lines = [f"n = {NORM.format('x')}", f"o = {NORM.format('n')}", "p = Conv(o, w)"]
    lines += [f"q = {NORM.format('p')}", f"y = {NORM.format('q')}"]
    folded, trace = folded_equal(conv_net(*lines), IMAGE)
    assert ops(folded) == ["Conv"]
    assert len(trace.rewrites) == 4


def test_padding_stops_the_fold_forward_only_where_there_is_a_shift() -> None:
    lines = [f"n = {NORM.format('x')}", "y = Conv<PADS>(n, w)"]
    folded, trace = folded_equal(conv_net(*lines, pads="0,1,0,0"), IMAGE)
    assert ops(folded) == ["BatchNormalization", "Conv"]
    assert "pads with zeros" in reasons(trace)
    lines[0] = "z = Constant<value=float[3]{0,0,0}>() n = BatchNormalization(x, s, z, z, v)"
    folded, trace = folded_equal(conv_net(*lines, pads="0,1,0,0"), IMAGE)
    assert ops(folded) == ["Conv"]


def test_a_chain_in_front_is_left_to_fold_affine() -> None:
    lines = ["p = Conv(x, u)", "k = Constant<value_float=2.0>()", "d = Div(p, k)"]
    lines += [f"n = {NORM.format('d')}", "y = Conv(n, w)"]
    folded, trace = folded_equal(conv_net(*lines), IMAGE)
    assert len(folded.nodes("BatchNormalization")) == 1
    assert "'fold-affine' folds it" in reasons(trace)


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        ("ConvTranspose(n, w)", "at the border"),
        ("Relu(n)", "neither directly before nor directly after it"),
    ],
)
def test_what_stands_behind_cannot_take_it(reader: str, reason: str) -> None:
    _, trace = folded_equal(conv_net(f"n = {NORM.format('x')}", f"y = {reader}"), IMAGE)
    assert reason in reasons(trace)


def test_old_opsets_are_declined() -> None:
    model = conv_net("p = Conv(x, w)", f"y = {NORM.format('p')}")
    model.opsets[""] = 6
    trace = apply(model, FoldBatchNorm())[1]
    assert not trace.rewrites
    assert "opset 6" in reasons(trace)


# -- through a quantized weight ---------------------------------------------------------------


def quantized(
    kind: str, axis: int | None, gamma: list[float], op: str = "Conv", **attrs: Any
) -> Model:
    """A layer with a quantized weight and a BatchNormalization of this gamma behind it."""
    b = Build(opset=21, seed=5)
    channels = len(gamma)
    shape = {"Conv": (channels, 2, 3, 3), "Gemm": (6, channels), "MatMul": (6, channels)}.get(op)
    w = b.weight_values(*(shape or (4, channels // attrs.get("group", 1), 3, 3)))
    x = {"Conv": (1, 2, 5, 5), "ConvTranspose": (1, 4, 4, 4)}.get(op, (2, 6))
    y = b.op(op, b.input("x", x), b.init(w, "w"), **attrs)
    model = from_proto(b.model(b.bn(y, channels, gamma=gamma, out="y")))
    scale = np.float32(np.abs(w).max() / 120) if axis is None else channel_scale(w, axis, 120)
    low = {"uint8": 0, "int8": -128, "narrow": -127}[kind]
    fields: dict[str, Any] = {"qtype": "uint8" if kind == "uint8" else "int8", "lo": low}
    fields["zero_point"] = np.full(np.shape(scale), 128 if kind == "uint8" else 0)
    return weight(model, "w", scale=scale, axis=axis, **fields)


def codes(model: Model) -> Floats:
    (node,) = model.nodes(FAKE_QUANTIZE)
    return params_of(node).quantize(node.inputs[0].values)


AXES = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}


@pytest.mark.parametrize("op", AXES)
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("kind", ["int8", "narrow", "uint8"])
def test_codes_do_not_move(op: str, per_channel: bool, kind: str) -> None:
    gamma = [1.3, -0.6, 0.0, 2.5]
    model = quantized(kind, AXES[op] if per_channel else None, gamma, op)
    before, x = codes(model), inputs(model.to_proto())["x"]
    folded, trace = folded_equal(model, x)
    assert not folded.nodes("BatchNormalization")
    (node,) = folded.nodes(FAKE_QUANTIZE)
    params, after = params_of(node), codes(folded)
    assert params.axis == AXES[op]
    old, new = (np.moveaxis(q, AXES[op], 0) for q in (before, after))
    np.testing.assert_array_equal(new[[0, 3]], old[[0, 3]])
    zero = params.zero_point
    if kind == "uint8":
        np.testing.assert_array_equal(zero, [128, 127, 128, 128])
        np.testing.assert_array_equal(new[1], 255 - old[1])
        assert any("negative gain" in note for note in trace.notes)
    else:
        np.testing.assert_array_equal(zero, 0)
        np.testing.assert_array_equal(new[1], -old[1])
        assert not any("negative gain" in note for note in trace.notes)
    np.testing.assert_array_equal(new[2], zero[2])
    assert any("one scale became 4" in note for note in trace.notes) == (not per_channel)
    np.testing.assert_array_equal(
        run_tap(folded, node.outputs[0].name, x), node.inputs[0].values
    )  # the weight is on its grid


def run_tap(model: Model, name: str, x: Floats) -> Floats:
    return sessions.reference(model, taps=[name]).run({"x": x})[name]


def test_code_that_has_no_negative_flips_its_channel() -> None:
    model = quantized("int8", 0, [-1.0, -1.0, 1.0, -1.0])
    (node,) = model.nodes(FAKE_QUANTIZE)
    values = np.array(node.inputs[0].values)
    values[1, 0, 0, 0] = -128 * params_of(node).scale[1]
    node.inputs[0].values = values
    before = codes(model)
    assert before[1].min() == -128
    folded, trace = folded_equal(model, inputs(model.to_proto())["x"])
    after = codes(folded)
    np.testing.assert_array_equal(after[0], -before[0])
    np.testing.assert_array_equal(after[1], -1 - before[1])
    np.testing.assert_array_equal(
        params_of(folded.nodes(FAKE_QUANTIZE)[0]).zero_point, [0, -1, 0, 0]
    )
    assert "1 of 4 output channels" in trace.notes[0]


def test_grouped_conv_transpose_with_a_quantized_weight() -> None:
    gamma = [1.0, -0.5, 1.0, -0.5]
    model = quantized("int8", 1, gamma, "ConvTranspose", group=2)
    norm = model.nodes("BatchNormalization")[0]
    different, _ = apply(model, FoldBatchNorm())
    assert different.nodes("BatchNormalization"), "its statistics differ between groups"
    norm.inputs[4].values = np.ones(4, np.float32)
    folded, _ = folded_equal(model, inputs(model.to_proto())["x"])
    assert ops(folded) == ["FakeQuantize", "ConvTranspose"]
    norm.inputs[4].values = np.float32([1, 1, 2, 1])
    _, trace = folded_equal(model, inputs(model.to_proto())["x"])
    assert "differs between groups" in reasons(trace)


@pytest.mark.parametrize(
    ("axis", "gamma", "reason"),
    [
        (1, [1.0, 2.0, 3.0, 4.0], "run along axis 1"),
        (0, [1.0, 1.0, 1e-42, 1.0], "out of the range of float32"),
    ],
)
def test_scales_that_cannot_take_the_gain(axis: int, gamma: list[float], reason: str) -> None:
    model = quantized("int8", axis, gamma)
    _, trace = folded_equal(model, inputs(model.to_proto())["x"])
    assert reason in reasons(trace)


def test_quantized_weight_behind_stays() -> None:
    model = conv_net(f"n = {NORM.format('x')}", "y = Conv(n, w)")
    _, trace = folded_equal(weight(model, "w", scale=np.float32(0.05)), IMAGE)
    assert "its scales cannot contain" in reasons(trace)


def test_quantizer_between_layer_and_norm_stays() -> None:
    model = quantize(conv_net("p = Conv(x, w)", f"y = {NORM.format('p')}"), "p")
    assert "BatchNormalization" in ops(folded_equal(model, IMAGE)[0])
