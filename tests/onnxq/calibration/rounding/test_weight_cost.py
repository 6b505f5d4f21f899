"""What quantized weights take and lose."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.rounding.weight_cost import WeightCost, weight_cost
from onnxq.graph import from_proto
from tests.models.networks import NETWORKS
from tests.models.zoo_build import Build


def test_bytes_and_decibels() -> None:
    b = Build()
    weight = b.weight_values(64, 8)
    made = b.op("MatMul", b.input("x", [1, 64]), b.init(weight), out="y")
    model = float_form(from_proto(b.model(made)))[0]
    backend = find_backend("onnxruntime").variant("weight-only")
    placed = Placing(model, backend).place({})
    cost = weight_cost(model, placed.model)
    assert cost is not None
    assert (cost.count, cost.float_bytes) == (1, 64 * 8 * 4)
    assert cost.stored_bytes == 64 * 8 / 2 + 2 * 8 * 4
    (node,) = placed.model.nodes("onnxq::FakeQuantize")
    scale = np.repeat(node.inputs[1].values, 32, axis=0)
    rounded = np.clip(np.rint(weight / scale), -8, 7) * scale
    share = np.square(rounded - weight, dtype=np.float64).sum() / np.square(weight).sum()
    assert cost.share == pytest.approx(share, rel=1e-5)
    assert 15 < cost.sqnr < 30
    assert "0.3 kB, 2.0 kB in float" in cost.text


def test_large_numbers_are_in_megabytes() -> None:
    assert "0.4 MB" not in WeightCost(1, 4_000_000, 400_000.0, 0.0).text
    assert "take 1.5 MB, 4.0 MB in float" in WeightCost(1, 4_000_000, 1.5e6, 0.0).text


def test_a_model_without_quantized_weights_has_no_cost() -> None:
    model = float_form(from_proto(NETWORKS["conv1d"]()))[0]
    assert weight_cost(model, model) is None
