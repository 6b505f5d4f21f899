from __future__ import annotations

import pytest

from onnxq.pipeline import Pipeline
from passes.drop_identity import DropIdentity
from tests.checks.applied import apply_checked
from tests.models import zoo
from tests.models.build import parse


def test_runs_of_identities_vanish_and_the_output_keeps_its_name() -> None:
    done = apply_checked(
        """g (float[2] x) => (float[2] y)
        { a = Identity(x) b = Identity(a) c = Relu(b) d = Identity(c) y = Identity(d) }""",
        DropIdentity(),
    )
    assert done.ops() == ["Relu"]
    assert list(done.proto.graph.node[0].output) == ["y"]
    assert len(done.trace.rewrites) == 4
    assert done.reasons() == []


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("g (float[2] x) => (float[2] y) { y = Identity(x) }", "graph input 'x'"),
        ("g () => (float[2] y) <float[2] w = {1, 2}> { y = Identity(w) }", "initializer 'w'"),
        (
            "g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) y = Identity(a) }",
            "'a' and 'y' are both outputs",
        ),
        (
            "g (float[2] x) => (float[2] y) { y = Relu(x) dead = Identity(x) }",
            "its result is unused",
        ),
    ],
    ids=["input", "initializer", "two outputs", "dead"],
)
def test_an_identity_that_must_stay_does(graph: str, reason: str) -> None:
    done = apply_checked(graph, DropIdentity())
    assert "Identity" in done.ops()
    assert done.trace.rewrites == []
    assert len(done.reasons()) == 1
    assert reason in done.reasons()[0]


def test_a_body_that_returns_an_outer_value_keeps_its_identity() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) {
          r = Relu(x)
          y = If(flag) <
            then_branch = t () => (float[2] a) { n = Neg(r) m = Identity(n) a = Identity(m) },
            else_branch = e () => (float[2] b) { b = Identity(r) }
          > }""",
        DropIdentity(),
    )
    assert sorted(done.ops()) == ["Identity", "If", "Neg", "Relu"]
    assert done.reasons() == ["'r' comes from an enclosing graph and is an output of this one"]


def test_an_outer_identity_read_in_a_body_is_dropped() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) {
          i = Identity(x)
          y = If(flag) <
            then_branch = t () => (float[2] a) { a = Neg(i) },
            else_branch = e () => (float[2] b) { b = Relu(i) }
          > }""",
        DropIdentity(),
    )
    assert "Identity" not in done.ops()


def test_weights_behind_identities_are_read_directly() -> None:
    done = apply_checked(zoo.ZOO["weight_behind_identity"](), DropIdentity())
    assert "Identity" not in done.ops()
    constants = set(done.initializers())
    for node in done.proto.graph.node:
        if node.op_type == "Conv":
            assert node.input[1] in constants


@pytest.mark.parametrize(
    ("graph", "opset"),
    [
        ("g (float[2] x) => (float[2] y) { a = Dropout <ratio = 0.5> (x) y = Relu(a) }", 10),
        ("g (float[2] x) => (float[2] y) { a, mask = Dropout(x) y = Relu(a) }", 13),
        (
            """g (float[2] x) => (float[2] y) <float r = {0.5}, bool train = {0}>
            { a = Dropout(x, r, train) y = Relu(a) }""",
            17,
        ),
        ("g (float[2] x) => (float[2] y) { a = Relu(x) y = Dropout(a) }", 17),
    ],
    ids=["opset 10", "mask unread", "training_mode false", "to the output"],
)
def test_dropout_outside_training_vanishes(graph: str, opset: int) -> None:
    done = apply_checked(parse(graph, opset, ir_version=5 if opset < 11 else 8), DropIdentity())
    assert done.ops() == ["Relu"]


@pytest.mark.parametrize(
    ("graph", "opset", "reason"),
    [
        (
            "g (float[2] x) => (float[2] y, bool[2] m) { y, m = Dropout(x) }",
            13,
            "its mask 'm' is used",
        ),
        (
            """g (float[2] x) => (float[2] y) <float r = {0.5}, bool train = {1}>
            { a = Dropout(x, r, train) y = Relu(a) }""",
            17,
            "it is in training mode",
        ),
        (
            """g (float[2] x, bool train) => (float[2] y) <float r = {0.5}>
            { a = Dropout(x, r, train) y = Relu(a) }""",
            17,
            "known only at run time ('train')",
        ),
        ("g (float[2] x) => (float[2] y) { a = Dropout(x) y = Relu(a) }", 6, "(is_test is 0)"),
    ],
    ids=["mask", "training", "dynamic", "opset 6"],
)
def test_dropout_that_may_drop_stays(graph: str, opset: int, reason: str) -> None:
    model = parse(graph, opset)
    trace = Pipeline(DropIdentity()).run(model).traces[0]
    assert trace.rewrites == []
    assert reason in trace.skips[0].reason
