"""Where a target has quantizers, as data."""

from __future__ import annotations

from typing import Any

import pytest

from onnxq.backend import Backend, backends
from onnxq.errors import OptionError
from onnxq.operators import placement
from onnxq.operators.op_kind import kind_of
from onnxq.operators.placement import (
    INPUTS_ONLY,
    KINDS,
    LAYERS,
    MOVES,
    TOTAL_INTEGER,
    Placement,
    add_op_kind,
    kinds,
)
from tests.models.build import parse


def test_kinds_are_written_in_groups() -> None:
    assert kinds("Conv Linear", "Add") == {"Conv", "Linear", "Add"}
    assert kinds() == frozenset()


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": kinds("Conv Convolution")},
        {"inputs": LAYERS, "absorbed": kinds("ReLU")},
        {"inputs": LAYERS, "merged": frozenset({("Add", "Scale")})},
    ],
)
def test_a_misspelt_kind_is_refused(wrong: dict[str, frozenset[str]]) -> None:
    with pytest.raises(OptionError, match=r"^unknown op kinds: (Convolution|ReLU|Scale)") as caught:
        Placement(**wrong)  # type: ignore[arg-type]
    assert "names of ONNX operators" in caught.value.fix


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ({"inputs": "Conv"}, 'give a frozenset({"Conv"})'),
        ({"inputs": {"Conv"}}, 'give a frozenset({"Conv"})'),
        ({"inputs": LAYERS, "merged": kinds("Add")}, "of (consumer, producer)"),
    ],
)
def test_fields_of_other_kinds_are_refused(wrong: dict[str, Any], fix: str) -> None:
    with pytest.raises(OptionError, match="Placement: ") as caught:
        Placement(**wrong)
    assert fix in caught.value.fix


def test_an_operator_of_another_kind_is_told() -> None:
    with pytest.raises(OptionError, match="Gemm is of the kind 'Linear'"):
        Placement(inputs=kinds("Gemm"))


def test_the_common_rules() -> None:
    assert INPUTS_ONLY.outputs == frozenset()
    assert TOTAL_INTEGER.inputs == INPUTS_ONLY.inputs
    # What only moves values writes the codes it reads: it has no quantizer of its own behind it.
    assert TOTAL_INTEGER.outputs.isdisjoint(MOVES)
    assert LAYERS <= KINDS


@pytest.mark.parametrize("name", sorted(backends()))
def test_every_backend_quantizes_the_inputs_or_outputs_of_its_weighted_ops(name: str) -> None:
    backend = backends()[name]
    assert isinstance(backend, Backend)
    placement = backend.placement
    assert (placement.weights - {"Embedding"}) <= (placement.inputs | placement.outputs)


def test_another_operator_of_onnx_becomes_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_ADDED", set())
    (node,) = parse("g (float[2] x) => (float[2] y) { y = Selu(x) }").nodes("Selu")
    assert kind_of(node) is None
    with pytest.raises(OptionError, match=r"(?s)Selu.*add_op_kind"):
        Placement(inputs=kinds("Selu"))
    assert add_op_kind("Selu") == add_op_kind("Selu") == "Selu"
    assert Placement(inputs=kinds("Selu")).inputs == {"Selu"}
    assert kind_of(node) == "Selu"


@pytest.mark.parametrize("name", ["SELU", "Convolution", "Gemm", "GlobalMaxPool", ""])
def test_other_words_are_no_kinds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_ADDED", set())
    with pytest.raises(OptionError, match="not the name of an ONNX operator"):
        add_op_kind(name)
