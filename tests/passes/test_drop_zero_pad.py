from __future__ import annotations

import pytest

from passes.drop_zero_pad import DropZeroPad
from tests.checks.applied import apply_checked
from tests.models import zoo
from tests.models.build import parse


@pytest.mark.parametrize(
    ("graph", "opset"),
    [
        ("g (float[1,2] x) => (float[1,2] y) { a = Pad <pads = [0,0,0,0]> (x) y = Relu(a) }", 10),
        (
            """g (float[1,2] x) => (float[1,2] y) <int64[4] p = {0,0,0,0}, float v = {7}>
            { a = Pad(x, p, v) y = Relu(a) }""",
            13,
        ),
        (
            """g (float[1,2] x) => (float[1,2] y) {
            p = Constant <value_ints = [0,0,0,0]> () q = Identity(p)
            r = Relu(x) y = Pad <mode = "edge"> (r, q) }""",
            17,
        ),
        (
            """g (float[1,2] x) => (float[1,2] y) <int64[2] p = {0,0}, int64[1] axes = {1}>
            { a = Pad(x, p, , axes) y = Relu(a) }""",
            18,
        ),
    ],
    ids=["attribute", "initializer", "behind Identity, to the output", "with axes"],
)
def test_a_pad_of_nothing_vanishes(graph: str, opset: int) -> None:
    done = apply_checked(parse(graph, opset, ir_version=5 if opset < 11 else 8), DropZeroPad())
    assert "Pad" not in done.ops()
    assert "Relu" in done.ops()
    assert done.proto.graph.output[0].name == "y"
    assert len(done.trace.rewrites) == 1


@pytest.mark.parametrize("pads", ["1,0,0,0", "0,0,0,-1"])
def test_a_pad_that_pads_or_crops_stays(pads: str) -> None:
    done = apply_checked(
        f"g (float[2,3] x) => (float[M,N] y) <int64[4] p = {{{pads}}}> {{ y = Pad(x, p) }}",
        DropZeroPad(),
    )
    assert done.ops() == ["Pad"]
    assert done.trace.rewrites == []


def test_pads_that_are_an_input_are_left_with_a_reason() -> None:
    done = apply_checked(
        "g (float[2,3] x, int64[4] p) => (float[M,N] y) { y = Pad(x, p) }", DropZeroPad()
    )
    assert done.reasons() == ["its pads 'p' are known only at run time"]


def test_pads_the_caller_may_replace_are_not_constant() -> None:
    done = apply_checked(
        """g (float[2,3] x, int64[4] p) => (float[M,N] y) <int64[4] p = {0,0,0,0}>
        { y = Pad(x, p) }""",
        DropZeroPad(),
    )
    assert done.reasons() == ["its pads 'p' are known only at run time"]


def test_between_input_and_output_it_becomes_an_identity() -> None:
    done = apply_checked(
        "g (float[2,3] x) => (float[2,3] y) <int64[4] p = {0,0,0,0}> { y = Pad(x, p) }",
        DropZeroPad(),
    )
    assert done.ops() == ["Identity"]


def test_one_nobody_reads_stays() -> None:
    done = apply_checked(
        """g (float[2,3] x) => (float[2,3] y) <int64[4] p = {0,0,0,0}>
        { y = Relu(x) dead = Pad(x, p) }""",
        DropZeroPad(),
    )
    assert done.trace.rewrites == []
    assert "its result is unused" in done.reasons()[0]


def test_only_the_pad_that_pads_is_left_in_the_zoo_model() -> None:
    done = apply_checked(zoo.ZOO["zero_pad"](), DropZeroPad())
    assert done.ops().count("Pad") == 1
