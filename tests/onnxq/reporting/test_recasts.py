"""Grids that changed, and their cost where they changed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onnxq.observing.tensor_statistics import TensorStatistics, Wanted
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.reporting.recasts import recast_grids

VALUES = np.random.default_rng(0).normal(size=4096).astype(np.float32)


def row(tensor: str, kind: str = "int8", scale: float = 0.05, **fields: object) -> QParams:
    return QParams(tensor, qtype(kind), scale, fields.pop("zero_point", 0), **fields)  # type: ignore[arg-type]


def seen(*tensors: str) -> dict[str, TensorStatistics]:
    found = {tensor: TensorStatistics(Wanted()) for tensor in tensors}
    for each in found.values():
        each.add(VALUES)
    return found


def test_the_cost_is_that_of_the_new_grid() -> None:
    old, new = row("a"), row("a", scale=0.06)
    (found,) = recast_grids(QParamTable([old]), QParamTable([new]), seen("a"))
    error = old.fake(VALUES).astype(np.float64) - new.fake(VALUES)
    cost = 10 * np.log10(np.square(old.fake(VALUES)).sum() / np.square(error).sum())
    assert found.sqnr == pytest.approx(cost, abs=0.5)
    assert (found.before, found.after) == ("int8 -6.4 to 6.35", "int8 -7.68 to 7.62")


def test_the_worst_comes_first_and_unknown_costs_last() -> None:
    before = QParamTable([row("a"), row("b"), row("c")])
    after = QParamTable([row("a", scale=0.051), row("b", scale=0.3), row("c", scale=0.3)])
    found = recast_grids(before, after, seen("a", "b"))
    assert [each.tensor for each in found] == ["b", "a", "c"]
    assert found[-1].to_json()["sqnr"] is None


def test_other_codes_for_the_same_levels_are_no_change() -> None:
    before = QParamTable([row("a")])
    after = QParamTable([row("a", "uint8", zero_point=128)])
    assert recast_grids(before, after, {}) == ()


def test_quantizers_that_came_and_went() -> None:
    found = recast_grids(QParamTable([row("a")]), QParamTable([row("b")]), seen("a", "b"))
    assert {(each.tensor, each.before == "", each.after == "") for each in found} == {
        ("a", False, True),
        ("b", True, False),
    }
    assert all(each.sqnr is not None and math.isfinite(each.sqnr) for each in found)


def test_weights_and_float_models_are_left_out() -> None:
    weights = QParamTable([row("w", role=Role.WEIGHT)]), QParamTable([row("w", scale=0.1)])
    assert recast_grids(*weights, {}) == ()
    assert recast_grids(QParamTable(), QParamTable([row("a")]), {}) == ()
