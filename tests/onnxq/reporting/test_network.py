"""The operators of a network as the page draws them."""

from __future__ import annotations

import pytest

from onnxq.reporting.coverage import Fate
from onnxq.reporting.measured import LayerError
from onnxq.reporting.network import Layer, network
from tests.models.build import parse_filled
from tests.models.reported import contents

BODY = """g (float[2,6] x) => (float[2,3] y) {
    a = MatMul(x, w)
    b = Relu(a)
    y = Add(a, b)
}"""


def layers(**sqnrs: float) -> tuple[Layer, ...]:
    errors = {name: LayerError(name, sqnr, 0.1, "relative") for name, sqnr in sqnrs.items()}
    fates = {name: Fate("float") for name in "aby"}
    return network(parse_filled(BODY, w=(6, 3)), {}, fates, errors)


def test_operators_and_what_they_read() -> None:
    a, b, y = layers()
    assert (a.op, a.weight, a.parameters, a.reads) == ("MatMul", "w", 18, ("x",))
    assert (b.producers, y.producers) == ((0,), (0, 1))
    assert a.shape == ""
    assert y.shape == "float32[2, 3]"
    assert (a.sqnr, a.added, a.name) == (None, None, "a")  # a node without a name


def test_added_noise_is_beyond_that_of_the_worst_input() -> None:
    a, b, y = layers(a=20.0, b=30.0, y=10.0)
    assert a.added == pytest.approx(0.01)
    assert b.added == 0
    assert y.added == pytest.approx(0.1 - 0.01)


def test_layers_that_were_not_compared_pass_the_noise_on() -> None:
    _, b, y = layers(a=20.0, y=20.0)
    assert b.added is None
    assert y.added == 0


def test_quantizers_are_no_nodes() -> None:
    found = contents().layers
    assert {layer.op for layer in found}.isdisjoint({"FakeQuantize", "QuantizeLinear"})
    assert {layer.quantizer for layer in found} == {"", "uint8"}
    assert found[0].to_json()["precision"] == "integer"
