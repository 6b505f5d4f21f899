"""Where a target has quantizers, as data."""

from __future__ import annotations

import pytest

from onnxq.backend import Backend, backends
from onnxq.operators.placement import (
    INPUTS_ONLY,
    KINDS,
    LAYERS,
    MOVES,
    TOTAL_INTEGER,
    Placement,
    kinds,
)


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
    with pytest.raises(ValueError, match=r"^unknown op kinds: (Convolution|ReLU|Scale)$"):
        Placement(**wrong)  # type: ignore[arg-type]


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
