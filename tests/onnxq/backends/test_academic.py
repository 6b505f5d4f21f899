"""The setting of papers: 4 bits, 8 in the first and last layers, no fusion."""

from __future__ import annotations

from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("academic").scheme
    assert scheme.weight.range == (-8, 7)
    assert scheme.activation.range == (0, 15)
    assert scheme.weight.with_bits(8).qtype.name == "int8"


def test_placement() -> None:
    placement = training_only("academic").placement
    assert placement.boundary_bits == 8
    assert not placement.fuse
    assert placement.inputs == {"Conv", "ConvTranspose", "Linear"}
