from __future__ import annotations

import onnx_graphsurgeon as gs
import pytest

from onnxq.dialects.node_rewrite import Declined, attempt, known_input
from onnxq.edit import describe, remove
from onnxq.errors import QParamsError
from onnxq.graph import Model
from onnxq.pass_ import Trace
from tests.models.build import parse


@pytest.fixture
def model() -> Model:
    return parse("g (float[2] x) => (float[2] y) { [first] y = Relu(x) }")


def only(model: Model) -> gs.Node:
    (node,) = model.nodes("Relu")
    return node


def test_what_was_rewritten_is_reported_under_the_name_it_had(model: Model) -> None:
    trace, node = Trace("p"), only(model)
    label = describe(node)

    def rewrite() -> str:
        remove(node, model)
        node.name = "gone"
        return "int8"

    attempt(node, trace, rewrite)
    assert trace.rewrites == [f"{label}: int8"]
    assert trace.skips == []


def test_nothing_to_do_is_not_reported(model: Model) -> None:
    trace = Trace("p")
    attempt(only(model), trace, lambda: "")
    assert (trace.rewrites, trace.skips) == ([], [])


def test_a_declined_node_is_left_with_the_reason(model: Model) -> None:
    trace, node = Trace("p"), only(model)

    def rewrite() -> str:
        raise Declined("it has no grid")

    attempt(node, trace, rewrite)
    assert [(s.where, s.reason) for s in trace.skips] == [(describe(node), "it has no grid")]
    assert trace.rewrites == []


def test_a_private_operator_without_inputs_is_an_error_that_names_it() -> None:
    model = parse("g (float[2] x) => (float[2] y) { a = other.Quant()  y = Add(x, a) }")
    (node,) = model.nodes("other::Quant")
    with pytest.raises(QParamsError, match=r"Quant producing 'a'.*: it has no input"):
        attempt(node, Trace("p"), lambda: "int8")


def test_unusable_parameters_are_an_error_that_names_the_node(model: Model) -> None:
    trace, node = Trace("p"), only(model)

    def rewrite() -> str:
        raise QParamsError("scale 0", fix="recalibrate")

    with pytest.raises(QParamsError) as caught:
        attempt(node, trace, rewrite)
    assert caught.value.what == f"{describe(node)}: scale 0"
    assert caught.value.fix == "recalibrate"
    assert (trace.rewrites, trace.skips) == ([], [])


def test_a_parameter_is_a_constant_or_there_is_a_reason() -> None:
    made = parse(
        """g (float[2] x, float s) => (float[2] y, float[2] z, float[2] u) <float c = {0.5}> {
            y = Known(x, c)
            z = Computed(x, s)
            u = Missing(x)
        }"""
    )
    (known,), (computed,), (missing,) = (made.nodes(op) for op in ("Known", "Computed", "Missing"))
    tensor, value = known_input(known, 1, "scale")
    assert (tensor.name, float(value)) == ("c", 0.5)
    with pytest.raises(Declined, match="its scale 's' is computed at run time"):
        known_input(computed, 1, "scale")
    with pytest.raises(QParamsError, match="it has no scale"):
        known_input(missing, 1, "scale")
