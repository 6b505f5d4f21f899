"""The setting of papers on transformers."""

from __future__ import annotations

from onnxq.discovery import find_backend
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("academic-nlp").scheme
    assert scheme == find_backend("academic").scheme


def test_placement() -> None:
    placement = training_only("academic-nlp").placement
    assert placement.inputs == {"Linear", "MatMul"}
    assert placement.boundary_bits is None
    assert "Embedding" in placement.weights
