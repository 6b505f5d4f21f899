"""Grids as drawings show them."""

from __future__ import annotations

import numpy as np

from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.reporting.drawn_grid import DrawnGrid


def params(**fields: object) -> QParams:
    given = {"qtype": qtype("uint8"), "scale": 0.5, "zero_point": 4, **fields}
    return QParams("x", **given)  # type: ignore[arg-type]


def test_over_values() -> None:
    grid = DrawnGrid.of(params(), in_codes=False)
    assert grid is not None
    assert grid.ends == (-2.0, 125.5)
    assert grid.step == 0.5
    assert grid.to_json()["codes"] == [0, 255]


def test_over_codes_channels_share_one_grid() -> None:
    scales = np.array([0.5, 0.25], np.float32)
    grid = DrawnGrid.of(params(scale=scales, zero_point=0, axis=0), in_codes=True)
    assert grid is not None
    assert grid.ends == (0, 255)
    assert grid.step == 1
    assert (grid.scales, grid.scale) == (2, (0.25, 0.5))


def test_uneven_levels_are_not_drawn() -> None:
    assert DrawnGrid.of(LogParams("x", 1.0, Role.ACTIVATION), in_codes=False) is None
    assert DrawnGrid.of(params(qtype=qtype("float8e4m3fn"), zero_point=0), in_codes=False) is None
