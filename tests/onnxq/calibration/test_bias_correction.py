"""Corrected biases against the average error that rounding really makes."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.arrays import pieces
from onnxq.calibration import bias_correction
from onnxq.calibration.bias_correction import correct_biases
from onnxq.graph import Model
from onnxq.quant.grid_of_range import grid_of_range
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.quant.scheme import QSpec
from passes.apply_qparams import ApplyQParams
from tests.models.build import apply, parse_filled, run, tensor

CONV = "g (float[1,4,6,6] x) => (float[1,6,4,4] y) {{ y = Conv<group={group}>(x, w{bias}) }}"
GEMM = """g (float[3,4] x) => (float[3,6] y)
    {{ y = Gemm<transB={turned}, alpha=0.5, beta=2.0>(x, w{bias}) }}"""
MATMUL = "g (float[3,4] x) => (float[3,6] y) { u = MatMul(x, w) y = Add(b, u) }"
Shape = tuple[int, ...]


def cases() -> list[tuple[str, Shape, int]]:
    """Texts, shapes of the weight and its axis of output channels."""
    made: list[tuple[str, Shape, int]] = [(MATMUL, (4, 6), 1)]
    for bias in ("", ", b"):
        made.append((CONV.format(group=1, bias=bias), (6, 4, 3, 3), 0))
        made.append((CONV.format(group=2, bias=bias), (6, 2, 3, 3), 0))
        made.append((GEMM.format(turned=1, bias=bias), (6, 4), 0))
        made.append((GEMM.format(turned=0, bias=bias), (4, 6), 1))
    return made


def coarse(model: Model, axis: int) -> QParamTable:
    """4-bit grids for the weight."""
    weight = tensor(model, "w").values
    over = tuple(i for i in range(weight.ndim) if i != axis)
    spec = QSpec(("int4",), symmetric=True, per_channel=True)
    low, high = weight.min(axis=over), weight.max(axis=over)
    table = QParamTable()
    table.add(grid_of_range("w", low, high, spec, axis=axis, role=Role.WEIGHT))
    return table


@pytest.mark.parametrize("at_once", [bias_correction.MOST_AT_ONCE, 0])
@pytest.mark.parametrize(("text", "shape", "axis"), cases())
def test_the_average_error_goes(
    text: str, shape: Shape, axis: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bias_correction, "MOST_AT_ONCE", at_once)
    monkeypatch.setattr(pieces, "ROWS", 10)
    biases = {"b": (6,)} if ", b" in text or "(b" in text else {}
    model = parse_filled(text, w=shape, **biases)
    table = coarse(model, axis)
    rng = np.random.default_rng(1)
    given = tensor(model, "x").shape
    means = np.array([2.0, -1.0, 0.5, 3.0])
    spread = means.reshape((1, -1, 1, 1) if len(given) == 4 else (1, -1))
    inputs = [(rng.normal(size=given) * 0.1 + spread).astype(np.float32) for _ in range(50)]
    over = (0, 2, 3) if len(given) == 4 else (0,)
    averages = {"x": np.mean([x.mean(axis=over) for x in inputs], axis=0)}

    def error(made: Model) -> float:
        """The largest average error of a channel."""
        made.qparams = table
        rounded = apply(made, ApplyQParams())[0]
        pairs = [(run(model, x)[0], run(rounded, x)[0]) for x in inputs]
        return float(np.abs(np.mean([b - a for a, b in pairs], axis=0).mean(axis=over)).max())

    corrected = model.clone()
    assert correct_biases(corrected, table, averages) == ["u" if "MatMul" in text else "y"]
    plain = error(model.clone())
    assert plain > 0.05
    # The taps of a kernel see other parts of an image, with slightly other averages.
    assert error(corrected) < (0.02 * plain if "Conv" in text else 1e-5)


def test_what_cannot_be_corrected_is_left() -> None:
    text = "g (float[3,4] x) => (float[3,6] y) { y = MatMul(x, w) }"
    model = parse_filled(text, w=(4, 6))
    assert correct_biases(model, coarse(model, 1), {"x": np.ones(4)}) == []  # it has no bias
    assert correct_biases(model, coarse(model, 1), {}) == []
    other = parse_filled(MATMUL, w=(4, 6), b=(6,))
    few = {"x": np.ones(5)}  # not the channels it reads
    assert correct_biases(other, coarse(other, 1), few) == []
