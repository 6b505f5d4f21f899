from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, data_max_of
from onnxq.graph import Model
from onnxq.pipeline import Pipeline
from passes.propagate_ranges import PropagateRanges
from tests.checks.applied import Applied, apply_checked
from tests.models.build import bit_equal, log_quantize, ops, parse, quantize, run, tensor, weight
from tests.models.canonical import (
    Canonical,
    assert_same_outputs,
    canonical_models,
    expose,
    grid,
    put,
)

PADS = "i = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>()"
MOVES = {
    "Identity": "b = Identity(a)",
    "Dropout": "b, mask = Dropout(a)",
    "Reshape": "i = Constant<value_ints = [4, 4]>() b = Reshape(a, i)",
    "Flatten": "b = Flatten(a)",
    "Transpose": "b = Transpose(a)",
    "Squeeze": "b = Squeeze(a)",
    "Unsqueeze": "i = Constant<value_ints = [0]>() b = Unsqueeze(a, i)",
    "Slice": "i = Constant<value_ints = [0]>() j = Constant<value_ints = [1]>() b = Slice(a, i, j)",
    "Gather": "i = Constant<value_ints = [0, 0]>() b = Gather <axis = 3> (a, i)",
    "GatherElements": """i = Constant<value_ints = [1, 0]>()
        j = Constant<value_ints = [1, 1, 1, 2]>() k = Reshape(i, j)
        b = GatherElements <axis = 3> (a, k)""",
    "GatherND": "i = Constant<value_ints = [0, 2]>() b = GatherND(a, i)",
    "Expand": "i = Constant<value_ints = [3, 4, 2, 2]>() b = Expand(a, i)",
    "Tile": "i = Constant<value_ints = [1, 1, 2, 3]>() b = Tile(a, i)",
    "MaxPool": "b = MaxPool <kernel_shape = [2, 2], pads = [1, 1, 1, 1]> (a)",
    "GlobalMaxPool": "b = GlobalMaxPool(a)",
    "DepthToSpace": "b = DepthToSpace <blocksize = 2> (a)",
    "SpaceToDepth": "b = SpaceToDepth <blocksize = 2> (a)",
    "Resize": "i = Constant<value_floats = [1., 1., 2., 2.]>() b = Resize(a, , i)",
    "Pad": f"{PADS} b = Pad(a, i)",
    "Pad with 0": f"{PADS} v = Constant<value_float = 0.>() b = Pad(a, i, v)",
    "Pad reflect": f'{PADS} b = Pad <mode = "reflect"> (a, i)',
    "Pad edge": f'{PADS} b = Pad <mode = "edge"> (a, i)',
}
STAYS = {
    "Resize linear": """i = Constant<value_floats = [1., 1., 2., 2.]>()
                        b = Resize <mode = "linear"> (a, , i)""",
    "Pad with 1": f"{PADS} v = Constant<value_float = 1.>() b = Pad(a, i, v)",
}
OTHERS = {"Sigmoid": "b = Sigmoid(a)", "AveragePool": "b = AveragePool <kernel_shape = [2, 2]> (a)"}


def around(move: str) -> Model:
    """`move` makes b from a; a is read by nothing else, nor is b."""
    return parse(
        f"""g (float[1,4,2,2] x) => (float y)
            {{ a = Sin(x) {move} c = Neg(b) y = ReduceSumSquare <keepdims = 0> (c) }}"""
    )


def quantized(applied: Applied) -> set[str]:
    """Names of the tensors that quantizers read."""
    return {str(node.inputs[0].name) for node in applied.model.nodes(FAKE_QUANTIZE)}


def test_only_forward_where_asked() -> None:
    forward = PropagateRanges(backward=False)
    behind = apply_checked(quantize(around(MOVES["Flatten"]), "b"), forward)
    assert quantized(behind) == {"b"}
    assert quantized(apply_checked(quantize(around(MOVES["Flatten"]), "a"), forward)) == {"a", "b"}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("place", ["a", "b"])
def test_range_moves_across(move: str, place: str) -> None:
    applied = apply_checked(quantize(around(MOVES[move]), place, zero_point=-3), PropagateRanges())
    assert quantized(applied) == {"a", "b"}
    first, second = map(params_of, applied.model.nodes(FAKE_QUANTIZE))
    assert first.same_grid(second)
    assert len(applied.trace.rewrites) == 1


@pytest.mark.parametrize("move", STAYS)
@pytest.mark.parametrize("place", ["a", "b"])
def test_operators_that_make_new_values(move: str, place: str) -> None:
    applied = apply_checked(quantize(around(STAYS[move]), place), PropagateRanges())
    assert quantized(applied) == {place}
    assert "computes new values" in applied.reasons()[0]


@pytest.mark.parametrize("move", OTHERS)
@pytest.mark.parametrize("place", ["a", "b"])
def test_unrelated_operators_are_not_mentioned(move: str, place: str) -> None:
    applied = apply_checked(quantize(around(OTHERS[move]), place), PropagateRanges())
    assert quantized(applied) == {place}
    assert not applied.trace.skips


def test_relu_passes_ranges_on_but_not_back() -> None:
    applied = apply_checked(quantize(around("b = Relu(a)"), "a"), PropagateRanges())
    assert quantized(applied) == {"a", "b"}
    applied = apply_checked(quantize(around("b = Relu(a)"), "b"), PropagateRanges())
    assert quantized(applied) == {"b"}


@pytest.mark.parametrize("place", ["a", "d"])
def test_chains_in_one_run(place: str) -> None:
    chain = "b1 = Transpose(a) b2 = MaxPool <kernel_shape = [1, 1]> (b1) d = Flatten(b2) b = Sin(d)"
    applied = apply_checked(quantize(around(chain), place), PropagateRanges())
    assert quantized(applied) == {"a", "b1", "b2", "d"}


def test_concat_of_equal_ranges() -> None:
    text = "t = Cos(x) b = Concat <axis = 1> (a, t)"
    model = quantize(quantize(around(text), "a"), "t")
    assert quantized(apply_checked(model, PropagateRanges())) == {"a", "t", "b"}
    model = quantize(quantize(around(text), "a"), "t", zero_point=1)
    applied = apply_checked(model, PropagateRanges())
    assert quantized(applied) == {"a", "t"}
    assert applied.reasons() == ["its inputs are quantized differently"]
    applied = apply_checked(quantize(around(text), "a"), PropagateRanges())
    assert quantized(applied) == {"a"}
    assert applied.reasons() == ["some of its inputs are not quantized"]


def test_concat_passes_its_range_back_to_every_input_it_owns() -> None:
    text = "t = Cos(x) u = Tan(t) b = Concat <axis = 1> (a, t, u)"
    applied = apply_checked(quantize(around(text), "b"), PropagateRanges())
    assert quantized(applied) == {"a", "u", "b"}
    assert applied.reasons() == ["'t' has other consumers"]


SPLIT = """g (float[2,4] x) => (float[1,4] y, float[1,4] z)
   { a = Sin(x) b, c = Split(a) y = Neg(b) z = Neg(c) }"""


def test_split_forward_reaches_all_results() -> None:
    applied = apply_checked(quantize(parse(SPLIT), "a"), PropagateRanges())
    assert quantized(applied) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("zero_points", "reached", "reason"),
    [
        ({"b": 0, "c": 0}, {"a", "b", "c"}, None),
        ({"b": 0, "c": 1}, {"b", "c"}, "its results are quantized differently"),
        ({"b": 0}, {"b"}, "some of its results are not quantized"),
    ],
)
def test_split_backward_needs_all_results(
    zero_points: dict[str, int], reached: set[str], reason: str | None
) -> None:
    model = parse(SPLIT)
    for name, zero_point in zero_points.items():
        quantize(model, name, zero_point=zero_point)
    applied = apply_checked(model, PropagateRanges())
    assert quantized(applied) == reached
    assert applied.reasons() == ([] if reason is None else [reason])


def test_backward_not_where_a_result_is_also_read_in_float() -> None:
    model = around("b = Transpose(a)")
    made = put(model, tensor(model, "b"), grid("b"))
    assert made is not None
    tensor(model, "b").dtype = np.dtype(np.float32)
    tensor(model, "b").shape = [2, 2, 4, 1]
    expose(model, tensor(model, "b"))
    applied = apply_checked(model, PropagateRanges())
    assert quantized(applied) == {"b"}


def test_maxpool_whose_indices_are_read() -> None:
    """Rounding makes values equal, and the index of the largest is another one."""
    model = parse(
        """g (float[1,1,2,2] x) => (float[1,1,1,1] y, int64[1,1,1,1] i)
           { a = Sin(x) b, i = MaxPool <kernel_shape = [2, 2]> (a) y = Neg(b) }"""
    )
    applied = apply_checked(quantize(model, "b", scale=np.float32(1)), PropagateRanges())
    assert quantized(applied) == {"b"}
    assert "indices are used" in applied.reasons()[0]


def test_per_channel_ranges_stay() -> None:
    model = quantize(
        around("b = Transpose(a)"), "a", scale=np.ones(4), zero_point=np.zeros(4), axis=1
    )
    applied = apply_checked(model, PropagateRanges())
    assert quantized(applied) == {"a"}
    assert "one scale per channel" in applied.reasons()[0]


@pytest.mark.parametrize("place", ["w", "t"])
def test_weights_have_one_quantizer(place: str) -> None:
    model = parse(
        """g (float[1,2] x) => (float[1,3] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}>
           { t = Transpose(w) y = MatMul(x, t) }"""
    )
    applied = apply_checked(weight(model, place), PropagateRanges())
    assert quantized(applied) == {place}
    assert applied.reasons() == ["its data is a weight"]


def test_table_of_an_embedding_takes_the_range_of_its_rows() -> None:
    model = parse(
        """g (int64[2] i) => (float[2,2] y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}>
           { t = Gather(w, i) y = Neg(t) }"""
    )
    applied = apply_checked(quantize(model, "t"), PropagateRanges())
    assert quantized(applied) == {"w", "t"}


def test_outputs_and_bodies() -> None:
    model = parse(
        """g (bool c, float[2,3] x) => (float[3,2] y, float[3,2] z) {
             a = Sin(x)
             z = Transpose(a)
             y = If (c) <then_branch = t () => (float[3,2] r) { r = Transpose(a) },
                         else_branch = e () => (float[3,2] q) { q = Identity(z) }> }"""
    )
    applied = apply_checked(quantize(model, "a"), PropagateRanges())
    names = {str(n.outputs[0].name) for n in applied.model.nodes(FAKE_QUANTIZE)}
    assert {"z", "r", "q"} < names


def test_float16() -> None:
    text = "g (float16[2,2] x) => (float16[2,2] y) { a = Relu(x) b = Transpose(a) y = Neg(b) }"
    model = parse(text, 21, 10)
    tensor(model, "a").dtype = np.dtype(np.float16)
    quantize(model, "a", scale=np.float16(0.1))
    assert quantized(apply_checked(model, PropagateRanges())) == {"a", "b"}
    model = parse(text, 21, 10)
    tensor(model, "a").dtype = np.dtype(np.float16)
    quantize(model, "a", qtype="int16", scale=np.float16(0.001))
    applied = apply_checked(model, PropagateRanges())
    assert quantized(applied) == {"a"}
    assert "float16 cannot represent" in applied.reasons()[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(canonical_models())
def test_nothing_computed_changes(canonical: Canonical) -> None:
    result = Pipeline(PropagateRanges()).run(canonical.model)
    assert_same_outputs(canonical.model, result.model)
    again = Pipeline(PropagateRanges()).run(result.model)
    assert not again.traces[0].rewrites
    assert ops(result.model).count("Conv") == ops(canonical.model).count("Conv")


@pytest.mark.parametrize(("kind", "moved"), [("float", True), ("float16", False)])
def test_float8_moves_in_float32_alone(kind: str, moved: bool) -> None:
    """float16 has too few exponents for the smallest values times the scale."""
    model = parse(
        f"""g ({kind}[2,2] x) => ({kind}[2,2] y) {{
            b = Transpose(x)  y = Abs(b)
        }}""",
        opset=19,
        ir_version=9,
    )
    quantize(model, "x", qtype="float8e5m2")
    applied = apply_checked(model, PropagateRanges())
    assert len(applied.model.nodes(FAKE_QUANTIZE)) == (2 if moved else 1)
    assert moved or "float16 cannot represent the values of float8e5m2 codes exactly" in (
        applied.reasons()
    )


def test_logarithmic_grids_move_too() -> None:
    text = """g (float[2,2] x) => (float[2,2] y) {
        a = Transpose(x)  b = Relu(a)  c = Add(b, x)  d = Transpose(c)  y = Abs(d) }"""
    model = log_quantize(log_quantize(parse(text), "x", 1.3), "d", 0.7)
    applied = apply_checked(model, PropagateRanges())
    found = {n.inputs[0].name: data_max_of(n) for n in applied.model.nodes(FAKE_QUANTIZE_LOG)}
    one, other = float(np.float32(1.3)), float(np.float32(0.7))
    assert found == {"x": one, "a": one, "b": one, "c": other, "d": other}
    x = np.random.default_rng(0).normal(size=(2, 2)).astype(np.float32)
    assert bit_equal(run(applied.model, x), run(model, x))


@pytest.mark.parametrize(("constants", "rounded"), [(True, {"t", "h"}), (False, {"h"})])
def test_tables_of_embeddings(constants: bool, rounded: set[str]) -> None:
    model = parse(
        """g (int64[2] i) => (float[2,2] y) <float[3,2] t = {1, 2, 3, 4, 5, 6}> {
        h = Gather(t, i)  y = Abs(h) }"""
    )
    quantize(model, "h")
    made = Pipeline(PropagateRanges(constants=constants)).run(model).model
    assert {n.inputs[0].name for n in made.nodes(FAKE_QUANTIZE)} == rounded
