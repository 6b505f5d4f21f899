"""A recorded grid is found again by values that differ in their last bits, and by no others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.calibration.observed_range import observed_range
from onnxq.calibration.recorded_grids import GridRecord, Look, RecordedGrid
from onnxq.errors import LoadError
from onnxq.observing.range_methods import METHODS, Method
from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.parsing.strict_json import Entry
from onnxq.quant.grid_of_range import grid_numbers, grid_of_range
from onnxq.quant.qparams import Array, Role
from onnxq.quant.scheme import QSpec
from onnxq.quant.scheme_text import parse_rules

SPEC = parse_rules("uint8")
MSE = Method("mse")


def seen(samples: list[Array]) -> TensorStatistics:
    made = TensorStatistics(Wanted())
    for each in samples:
        made.add(each)
    return made


def samples(seed: int = 0, size: int = 1000) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=size).astype(np.float32) for _ in range(4)]


def rounded(values: list[Array], seed: int = 1, ulps: int = 8) -> list[Array]:
    """The same with other last bits."""
    random = np.random.default_rng(seed)
    off = [random.integers(-ulps, ulps + 1, x.shape) for x in values]
    return [x + np.spacing(x) * d.astype(np.float32) for x, d in zip(values, off, strict=True)]


def grid(values: list[Array], method: Method = MSE, spec: QSpec = SPEC) -> RecordedGrid:
    stats = seen(values)
    known = observed_range(stats, spec, method)
    row = grid_of_range("x", known.low, known.high, spec, role=Role.ACTIVATION)
    return RecordedGrid.of(row, spec, str(method), Look.of_activation(stats, method))


def found(record: GridRecord, values: list[Array], method: Method = MSE, spec: QSpec = SPEC) -> Any:
    stats = seen(values)
    own = observed_range(stats, spec, method)
    look = Look.of_activation(stats, method)
    return record.find(look, spec, str(method), (own.low, own.high))


@pytest.mark.parametrize("name", METHODS)
def test_the_same_values_except_for_rounding(name: str) -> None:
    made = grid(samples(), Method(name))
    ends = found(GridRecord([made]), rounded(samples()), Method(name))
    assert ends is not None
    scale, zero_point = grid_numbers(*ends, SPEC)
    assert np.float32(scale) == np.float32(made.scale[0])
    assert int(zero_point) == made.zero_point[0]


@pytest.mark.parametrize("name", METHODS)
def test_other_values(name: str) -> None:
    record, method = GridRecord([grid(samples(), Method(name))]), Method(name)
    assert found(record, samples(seed=5), method) is None
    assert found(record, samples()[:3], method) is None
    assert found(record, [x * np.float32(1.001) for x in samples()], method) is None


def test_values_that_differ_only_between_their_extremes() -> None:
    """Pictures all reach from 0 to 1: their brightness tells them apart."""
    random = np.random.default_rng(0)
    dark = [np.append(random.uniform(0, 0.5, 500), [0, 1]).astype(np.float32) for _ in range(4)]
    light = [1 - x for x in dark]
    assert found(GridRecord([grid(dark)]), dark) is not None
    assert found(GridRecord([grid(dark)]), light) is None
    record = GridRecord([grid(dark, Method())])  # the extremes alone decide: nothing is lost
    assert found(record, light, Method()) is not None


def test_saturated_values_next_to_the_edge_of_a_bin() -> None:
    ones = [np.linspace(0, 1, 100, dtype=np.float32), np.ones(900, np.float32)]
    below = [ones[0], np.nextafter(ones[1], np.float32(0))]
    assert found(GridRecord([grid(ones)]), below) is not None


def test_grids_of_another_kind_are_not_taken() -> None:
    record = GridRecord([grid(samples())])
    for rules in ("uint4", "int8", "uint8 power-of-two", "uint8 symmetric"):
        assert found(record, samples(), spec=parse_rules(rules)) is None
    assert found(record, samples(), Method("entropy")) is None


def test_the_nearest_of_several() -> None:
    made = grid(samples())
    other = replace(made, scale=(made.scale[0] * 1.5,))
    for order in ([made, other], [other, made]):
        ends = found(GridRecord(order), samples())
        assert np.float32(grid_numbers(*ends, SPEC)[0]) == np.float32(made.scale[0])


@settings(deadline=None, max_examples=100)
@given(
    rules=st.sampled_from(
        ["int8 symmetric", "uint8", "int4 symmetric", "uint16", "int8 power-of-two"]
    ),
    low=st.floats(-1e4, 0),
    high=st.floats(1e-3, 1e4),
)
def test_ends_give_the_grid_again(rules: str, low: float, high: float) -> None:
    spec = parse_rules(rules)
    row = grid_of_range("x", np.array([low]), np.array([high]), spec, axis=0, role=Role.WEIGHT)
    made = RecordedGrid.of(row, spec, "mse", Look(1, (low, high, low, high)))
    again = RecordedGrid.from_json(Entry.of(json.loads(json.dumps(made.to_json())), "g", "fix"))
    assert again == made
    scale, zero_point = grid_numbers(*again.ends(spec, (1,)), spec)
    np.testing.assert_array_equal(scale.astype(np.float32), row.scale)
    np.testing.assert_array_equal(zero_point, row.zero_point)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights(axis: int | None) -> None:
    values = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(np.float32)
    look = Look.of_weight(values, axis)
    assert look.agrees(Look.of_weight(rounded([values])[0], axis))
    assert not look.agrees(Look.of_weight(values * np.float32(1.001), axis))
    assert not look.agrees(Look.of_weight(values[:, :, :1], axis))
    if axis == 1:
        assert look == Look.of_weight(values.transpose(1, 0, 2), 0)


GOOD = {
    "tensor": "x",
    "method": "mse",
    "codes": "0..255",
    "count": 4,
    "extremes": [-1, 1, -1, 1],
    "scale": [0.5, 0.25],
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale": [0.5, 0]}, "scales must be positive"),
        ({"scale": []}, "not a list of numbers"),
        ({"zero_point": [1]}, "one zero point for each"),
        ({"extremes": [1, 2]}, "four extremes"),
        ({"averages": [1]}, "two averages"),
        ({"count": 1.5}, "not an integer"),
        ({"colour": 1}, "unknown key 'colour'"),
        ({"tensor": ""}, "not a non-empty string"),
    ],
)
def test_broken_entries_are_refused(change: dict[str, Any], words: str) -> None:
    RecordedGrid.from_json(Entry.of(GOOD, "grids[0]", "fix"))
    with pytest.raises(LoadError, match=rf"grids\[0\]: .*{words}"):
        RecordedGrid.from_json(Entry.of(GOOD | change, "grids[0]", "fix"))
