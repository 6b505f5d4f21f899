"""Finding chains in a graph, and following them link by link."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.dialects.composed_chain import chain_to, clip_range, number, scale_of
from onnxq.dialects.node_rewrite import Declined
from onnxq.graph import Model
from tests.models.build import parse, run, tensor

LINES = """d = Div(x, s)
    t = Round(d)
    q = Add(t, z)
    c = Clip(q, lo, hi)
    u = Sub(c, z)
    y = Mul(u, s)"""
CONSTANTS = "float s = {0.1}, float z = {3}, float lo = {0}, float hi = {15}"


def model(lines: str = LINES, constants: str = CONSTANTS) -> Model:
    return parse(f"g (float[6] x) => (float[6] y) <{constants}> {{ {lines} }}")


def last(found: Model) -> gs.Node:
    node: gs.Node = tensor(found, "y").inputs[0]
    return node


def test_a_chain_knows_its_source_steps_and_ends() -> None:
    chain = chain_to(last(model()))
    assert chain is not None
    assert (chain.source.name, chain.first.op) == ("x", "Div")
    assert [link.op for link in chain.links] == ["round", "add", "clip", "add"]
    assert chain.enter is not None
    assert (chain.enter[0], chain.leave[0]) == ("Div", "Mul")
    scale, exact = scale_of(chain)
    assert (scale, exact) == (np.float32(0.1), True)


def test_following_the_steps_gives_codes_and_zero_point() -> None:
    chain = chain_to(last(model()))
    assert chain is not None
    codes = clip_range(chain)
    assert codes.codes() == (0, 15)
    assert (int(codes.zero_point), codes.stated, codes.shifts_before_round) == (3, True, False)
    assert (float(codes.low), float(codes.high)) == (-3, 12)


def test_evaluating_a_chain_is_what_a_runtime_computes() -> None:
    found = model()
    chain = chain_to(last(found))
    assert chain is not None
    x = np.float32([-5, -0.25, 0.05, 0.15, 0.31, 9])
    assert chain.values(x).tobytes() == run(found, x)[0].tobytes()


def test_two_clips_keep_what_both_let_through() -> None:
    lines = """d = Div(x, s)
        t = Round(d)
        c = Clip(t, lo, hi)
        e = Clip(c, a, b)
        y = Mul(e, s)"""
    chain = chain_to(last(model(lines, CONSTANTS + ", float a = {-4}, float b = {9}")))
    assert chain is not None
    assert clip_range(chain).codes() == (0, 9)


@pytest.mark.parametrize(
    ("enter", "leave", "exact"),
    [
        ("Div(x, s)", "Mul(c, s)", True),
        ("Mul(x, r)", "Mul(c, s)", False),
        ("Mul(x, r)", "Div(c, r)", False),
        ("Div(x, s)", "Div(c, r)", False),
        ("Mul(x, eight)", "Mul(c, eighth)", True),
        ("Mul(x, eight)", "Div(c, eight)", True),
        ("Div(x, eighth)", "Div(c, eight)", True),
    ],
)
def test_reciprocals_are_told_from_exact_ones(enter: str, leave: str, exact: bool) -> None:
    constants = CONSTANTS + ", float r = {10}, float eight = {8}, float eighth = {0.125}"
    lines = f"d = {enter}\nt = Round(d)\nc = Clip(t, lo, hi)\ny = {leave}"
    chain = chain_to(last(model(lines, constants)))
    assert chain is not None
    scale, found = scale_of(chain)
    assert found is exact
    assert scale == np.float32(0.125 if "eight" in enter else 0.1)


def test_scales_that_differ_are_no_grid() -> None:
    lines = "d = Div(x, s)\nt = Round(d)\nc = Clip(t, lo, hi)\ny = Mul(c, z)"
    chain = chain_to(last(model(lines)))
    assert chain is not None
    with pytest.raises(Declined, match="another"):
        scale_of(chain)


@pytest.mark.parametrize("lines", ["y = Mul(x, s)", "t = Round(x)\ny = Mul(t, s)", "y = Mul(x, x)"])
def test_other_nodes_end_no_chain(lines: str) -> None:
    assert chain_to(last(model(lines))) is None


def test_a_long_way_back_is_not_walked() -> None:
    copies = "\n".join(f"t{i + 1} = Identity(t{i})" for i in range(40))
    lines = f"d = Div(x, s)\nt0 = Round(d)\n{copies}\nc = Clip(t40, lo, hi)\ny = Mul(c, s)"
    assert chain_to(last(model(lines))) is None


def test_constants_are_seen_behind_casts_to_the_type_of_data() -> None:
    found = model("k = Constant<value_int = 7>()\nl = CastLike(k, x)\ny = Add(x, l)")
    value = number(tensor(found, "l"))
    assert value is not None
    assert (value, value.dtype) == (7, np.float32)
    assert number(tensor(found, "x")) is None
