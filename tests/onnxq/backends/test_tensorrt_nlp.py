"""TensorRT for transformers: its rules and its scheme."""

from __future__ import annotations

from onnxq.discovery import find_backend
from tests.onnxq.backends.check import training_only


def test_scheme() -> None:
    scheme = training_only("tensorrt-nlp").scheme
    assert scheme == find_backend("tensorrt").scheme


def test_placement() -> None:
    placement = training_only("tensorrt-nlp").placement
    assert placement.inputs == {"Linear", "MatMul", "Add"}
    assert placement.tensors_only
    assert ("Add", "Embedding") in placement.untouched
    assert {("Add", "Mul"), ("Add", "Div")} == placement.merged
