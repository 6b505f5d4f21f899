"""The engine: settings, specs, boundary layers and missing ranges."""

from __future__ import annotations

import pytest

from onnxq.backend import chosen_backend
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing, kinds_of, names_of
from onnxq.calibration.ranges import KnownRange
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.errors import OptionError
from onnxq.graph import Model, from_proto
from onnxq.quant.settings import Settings
from tests.models.build import parse, parse_filled
from tests.models.networks import NETWORKS


def network(name: str = "resnet") -> Model:
    return float_form(from_proto(NETWORKS[name]()))[0]


def placing(backend: str, *rules: object, name: str = "resnet") -> Placing:
    return Placing(network(name), chosen_backend(backend, None), Settings.of(rules))


def known(made: Placing, low: float = -1.0, high: float = 2.0) -> dict[str, KnownRange]:
    tensors = (t.name for place in made.places for t in place.tensors)
    return {name: KnownRange.of(low, high, "a test") for name in tensors}


def test_every_place_gets_its_grid() -> None:
    made = placing("tensorrt")
    placed = made.place(known(made))
    rows = {t.name for place in made.places for t in place.tensors}
    assert rows | {w.name for _, w in made.weights} == set(placed.sources) == set(placed.rules)
    assert len(placed.model.nodes(*QUANTIZERS)) >= len(placed.sources)
    assert made.model.nodes(*QUANTIZERS) == []


def test_a_missing_range_is_noted_and_leaves_the_tensor_float() -> None:
    made = placing("tensorrt")
    ranges = known(made)
    gone = next(iter(ranges))
    del ranges[gone]
    placed = made.place(ranges)
    assert gone not in placed.sources
    assert any(note.startswith(f"'{gone}' stays float: no range is known") for note in placed.notes)


def test_float_layers_have_no_quantizers() -> None:
    plain = placing("onnxruntime")
    layer, weight = plain.weights[1]
    made = placing("onnxruntime", [layer.name, "float"])
    assert weight.name not in {w.name for _, w in made.weights}
    assert len(made.weights) == len(plain.weights) - 1


def test_a_pool_between_float_layers_stays_float() -> None:
    assert placing("onnxruntime").model.nodes("MaxPool")
    made = placing("onnxruntime", ["Conv", "float"], ["Linear", "float"])
    assert not made.places


def test_bits_and_symmetry_by_rule() -> None:
    made = placing("onnxruntime", ["Conv", {"bits": 4, "symmetric": True, "per_channel": False}])
    conv = next(node for node, _ in made.weights if node.op == "Conv")
    assert made.weight_spec(conv).bits == 4
    assert not made.weight_spec(conv).per_channel
    place = next(p for p in made.places if conv in p.asked_by)
    spec = made.activation_spec(place)
    assert spec.symmetric
    assert spec.bits == 4


@pytest.mark.parametrize(
    ("backend", "change", "words"),
    [
        ("snpe", {"per_channel": True}, "one scale per tensor for weights"),
        ("tensorrt", {"weight_bits": 16}, "no weights of 16 bits"),
    ],
)
def test_rules_the_target_does_not_have(backend: str, change: object, words: str) -> None:
    made = placing(backend, ["Conv", change])
    with pytest.raises(OptionError, match=words):
        made.place(known(made))


def test_the_last_layers_are_those_without_another_after_them() -> None:
    made = placing("academic")
    names = [node.op for node, _ in made.weights if id(node) in made._boundary]
    assert names == ["Conv", "Gemm"]  # the first and the last


def test_names_and_kinds_a_rule_can_use() -> None:
    text = "g (float[2,4] x) => (float[2,3] y) { y = MatMul(x, w) }"
    model = parse_filled(text, w=(4, 3))
    (node,) = model.nodes("MatMul")
    node.name = "/head/fc/MatMul"
    node.inputs[1].name = "head.fc.weight"
    assert set(names_of(node)) == {
        "/head/fc/MatMul",
        "y",
        "head.fc.MatMul",
        "head.fc",
    }
    assert set(kinds_of(node)) == {"MatMul", "Linear"}


def test_a_constant_operand_has_its_own_range() -> None:
    values = "<float[4] c = {1.0, -3.0, 2.0, 0.5}>"
    model = parse(f"g (float[2,4] x) => (float[2,4] y) {values} {{ y = Add(x, c) }}")
    made = Placing(model, chosen_backend("qnn", None))
    ranges = {"x": KnownRange.of(-1, 1, "t"), "y": KnownRange.of(-4, 4, "t")}
    placed = made.place(ranges)
    assert placed.sources.get("c") == "its own values"
