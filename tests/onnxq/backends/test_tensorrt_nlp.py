"""TensorRT for transformers: its rules, TensorRT's scheme and files."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.graph.constants import array
from tests.models.networks import NETWORKS
from tests.onnxq.backends.check import proven


def test_scheme_and_files_are_those_of_tensorrt() -> None:
    own, whole = find_backend("tensorrt-nlp"), find_backend("tensorrt")
    assert (own.scheme, own.pipeline, own.outputs) == (whole.scheme, whole.pipeline, whole.outputs)


def test_placement() -> None:
    placement = find_backend("tensorrt-nlp").placement
    assert placement.inputs == {"Linear", "MatMul", "Add"}
    assert placement.tensors_only
    assert ("Add", "Embedding") in placement.untouched
    assert {("Add", "Mul"), ("Add", "Div")} == placement.merged


@pytest.mark.parametrize("network", sorted(NETWORKS.keys() - {"unet"}))  # no linear layer there
def test_networks(network: str) -> None:
    done = proven("tensorrt-nlp", network)
    assert {p.what for p in done.proofs} >= {"qdq.onnx (reference)", "clip_ranges.json (read back)"}
    pairs = done.model.nodes("QuantizeLinear", "DequantizeLinear")
    zeros = [array(node.inputs[2]) for node in pairs]
    assert zeros
    assert all(z is not None and z.dtype == np.int8 and not z.any() for z in zeros)
