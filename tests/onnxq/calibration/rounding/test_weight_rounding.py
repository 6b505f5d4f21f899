"""Weights of whole models rounded by GPTQ: what is rounded, on which grid, and what is left."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.rounding import weight_rounding
from onnxq.calibration.rounding.weight_rounding import (
    WeightRounding,
    has_few_bits,
    is_small_window,
)
from onnxq.canonical.quantized_weights import quantized_weights
from onnxq.edit import users
from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.graph.dequantized import loaded
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.quant.settings import Settings
from onnxq.running.sessions import reference
from tests.models.networks import NETWORKS, samples
from tests.models.zoo_build import Build

Values = np.ndarray
FOUR_BITS = Settings.of([["*", {"weight_bits": 4}]])


def network(name: str) -> Model:
    return float_form(from_proto(NETWORKS[name]()))[0]


def grids(model: Model, settings: Settings = FOUR_BITS) -> QParamTable:
    """The grids of all weights, of 4 bits if not told otherwise."""
    placed = Placing(model, find_backend("onnxruntime"), settings).place({})
    return QParamTable([row for _, row, _ in quantized_weights(placed.model)])


def layer_error(model: Model, name: str, made: Values, feeds: list[dict[str, Values]]) -> float:
    """The squared error that other values of one weight cause at the output of its layer."""
    changed = model.clone()
    weight = next(t for n in changed.nodes() for t in n.inputs if t.name == name)
    (layer, _), *_ = users(weight)
    out = layer.outputs[0].name
    plain = reference(model, [out])
    weight.values = made
    other = reference(changed, [out])
    return sum(
        float(np.square(other.run(f)[out].astype(np.float64) - plain.run(f)[out]).sum())
        for f in feeds
    )


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_layer_is_better_than_with_nearest_codes(name: str) -> None:
    model, feeds = network(name), samples(name, 8)
    table = grids(model)
    rounded, notes = WeightRounding(model, feeds).rounded(table)
    assert bool(notes) == (name == "unet")  # which has a ConvTranspose
    near_sum, made_sum = 0.0, 0.0
    for row in table.of(Role.WEIGHT):
        if row.tensor not in rounded:
            continue
        made = rounded[row.tensor]
        assert made.dtype == np.float32
        assert np.array_equal(row.fake(made), made)
        old = next(array(t) for n in model.nodes() for t in n.inputs if t.name == row.tensor)
        assert old is not None
        near = layer_error(model, row.tensor, row.fake(old), feeds)
        own = layer_error(model, row.tensor, made, feeds)
        assert own <= near * (1 + 1e-4)  # the network computes in float32
        near_sum, made_sum = near_sum + near, made_sum + own
    assert made_sum < near_sum / 1.5


def test_batches_of_layers_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model, feeds = network("resnet"), samples("resnet", 3)
    table = grids(model)
    whole, _ = WeightRounding(model, feeds).rounded(table)
    monkeypatch.setattr(weight_rounding, "MEMORY", 1)
    apart, _ = WeightRounding(model, feeds).rounded(table)
    assert whole.keys() == apart.keys()
    assert all(np.array_equal(whole[name], apart[name]) for name in whole)


def test_results_are_kept_by_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    model, feeds = network("conv1d"), samples("conv1d", 3)
    table, rounding = grids(model), WeightRounding(model, feeds)
    first, _ = rounding.rounded(table)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the samples are run again")

    monkeypatch.setattr(weight_rounding, "observing", fail)
    again, _ = rounding.rounded(table)
    assert all(again[name] is first[name] for name in first)
    wider = QParamTable([r.with_(scale=r.scale * 2) for r in table])
    with pytest.raises(AssertionError, match="again"):
        rounding.rounded(wider)


def shared(*, gather: bool = False) -> Model:
    """Two layers with one weight; with `gather`, a lookup reads it as well."""
    b = Build()
    w = b.weight(6, 6)
    y = b.op("MatMul", b.op("Relu", b.op("MatMul", b.input("x", [2, 6]), w)), w)
    if gather:
        y = b.op("Add", y, b.op("Gather", w, b.ints(1, 2)))
    return from_proto(b.model(b.op("Identity", y, out="y")))


def row_of(model: Model, bits: int = 4) -> QParams:
    name = model.nodes("MatMul")[0].inputs[1].name
    return QParams(name, qtype(f"int{bits}"), np.float32(0.3), np.int64(0), role=Role.WEIGHT)


def test_a_weight_of_two_layers_is_rounded_for_both() -> None:
    model = shared()
    feeds = [{"x": np.random.default_rng(i).normal(size=(2, 6)).astype(np.float32)} for i in (1, 2)]
    row = row_of(model)
    rounded, notes = WeightRounding(model, feeds).rounded(QParamTable([row]))
    assert not notes
    assert np.array_equal(row.fake(rounded[row.tensor]), rounded[row.tensor])


def test_a_weight_with_another_use_is_left() -> None:
    model = shared(gather=True)
    feeds = [{"x": np.ones((2, 6), np.float32)}]
    rounded, notes = WeightRounding(model, feeds).rounded(QParamTable([row_of(model)]))
    assert not rounded
    assert "something other than a layer reads it" in notes[0]


def test_8_bits_of_a_matrix_are_left() -> None:
    model = shared()
    row = row_of(model, 8)
    assert not has_few_bits(row)
    feeds = [{"x": np.ones((2, 6), np.float32)}]
    assert WeightRounding(model, feeds).rounded(QParamTable([row])) == ({}, [])


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "conv1d"])
def test_8_bits_of_small_windows_are_rounded(name: str) -> None:
    model, feeds = network(name), samples(name, 6)
    layers = Placing(model, find_backend("onnxruntime")).weights
    small = [weight.name for node, weight in layers if is_small_window(node, weight.shape)]
    assert small
    table = grids(model, Settings())
    rounded, notes = WeightRounding(model, feeds).rounded(table)
    assert sorted(rounded) == sorted(small)
    assert notes == []
    near_sum, made_sum = 0.0, 0.0
    for row in table.of(Role.WEIGHT):
        if row.tensor in rounded:
            old = next(array(t) for n in model.nodes() for t in n.inputs if t.name == row.tensor)
            assert old is not None
            near_sum += layer_error(model, row.tensor, row.fake(old), feeds)
            made_sum += layer_error(model, row.tensor, rounded[row.tensor], feeds)
    assert made_sum < near_sum


def test_blocks_are_rounded_on_their_own_grids() -> None:
    model, feeds = network("transformer"), samples("transformer", 8)
    backend = find_backend("onnxruntime").variant("weight-only")
    placing = Placing(model, backend)
    made = placing.place({}, rounding=WeightRounding(model, feeds).rounded)
    assert len(made.rounded) == 7
    for _, params, values in quantized_weights(made.model):
        assert params.block == 32
        assert np.array_equal(params.fake(loaded(values)), loaded(values))
