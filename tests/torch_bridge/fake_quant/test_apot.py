"""Levels are sums of powers of two; da = Σ dy ((y-x)/a inside, sign(x) outside)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import OptionError
from tests.torch_bridge.fake_quant.quantizers import (
    Given,
    close,
    gradients,
    hard_values,
    make,
    spec,
)

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.fake_quant import algorithm  # noqa: E402
from torch_bridge.fake_quant.apot import level_codes  # noqa: E402


@pytest.mark.parametrize(
    ("bits", "levels"),
    [
        (1, [0, 1]),
        (2, [0, 1, 2, 4]),
        # {0, 1/2, 1/4, 1/16} + {0, 1/8}, in sixteenths
        (3, [0, 1, 2, 3, 4, 6, 8, 10]),
        # {0, 1/2, 1/8, 1/32} + {0, 1/4, 1/16, 1/64}, in sixty-fourths
        (4, [0, 1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, 33, 36, 48]),
    ],
)
def test_levels(bits: int, levels: list[int]) -> None:
    assert level_codes(bits) == levels


@pytest.mark.parametrize("bits", range(1, 9))
def test_all_levels_differ(bits: int) -> None:
    codes = level_codes(bits)
    assert len(set(codes)) == 2**bits
    assert codes[-1] < 2**15


@pytest.mark.parametrize(("kind", "axis"), [("int4", None), ("uint4", None), ("int4", 0)])
def test_forward_and_backward(kind: str, axis: int | None) -> None:
    x = hard_values(0.25, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, axis=axis)
    start: Any = 0.25 if axis is None else torch.linspace(0.1, 0.5, 10)
    quantizer = make("apot", of, start)
    codes = np.array(level_codes(3 if kind == "int4" else 4), np.float64)
    assert np.allclose(quantizer.clip.detach(), start * of.hi)

    row = quantizer.qparams("x")
    s = row.broadcast((10, 40))[0]
    v = (x.numpy() / s).astype(np.float64)
    size = np.abs(v) if kind == "int4" else v
    nearest = codes[np.abs(size[..., None] - codes).argmin(-1)]  # the lower one of two
    sign = np.sign(v) if kind == "int4" else 1.0
    y = (nearest * sign).astype(np.float32) * s
    assert np.array_equal(quantizer(x).detach().numpy(), y)
    assert np.array_equal(row.fake(y), y)  # every level is a code of the grid it exports with

    values, given = x.numpy().astype(np.float64), dy.numpy().astype(np.float64)
    a = quantizer.clip.detach().numpy().astype(np.float64).reshape(-1, 1)
    inside = np.abs(values) < a if kind == "int4" else (values >= 0) & (values < a)
    outer = np.sign(values) if kind == "int4" else (values > 0).astype(np.float64)
    terms = given * np.where(inside, (y - values) / a, outer)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside, given, 0))
    assert close(parameters["clip"], terms.sum() if axis is None else terms.sum(1), terms)


@pytest.mark.parametrize("fields", [{"symmetric": False}, {"axis": 0, "block": 4}])
def test_other_grids_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="'apot' cannot be"):
        algorithm("apot")(spec(**fields), Given(1.0))
