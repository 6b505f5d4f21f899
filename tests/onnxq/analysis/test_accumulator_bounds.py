"""Bounds of integer sums: reached by some input, exceeded by none, and true of real kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from onnxq.analysis.accumulator_bounds import Bounds, bounds
from onnxq.arrays import pieces
from onnxq.graph import from_proto
from onnxq.reading import canonical
from onnxq.running.sessions import deployed, shipped
from tests.checks.saturating import Ints, cpu_saturates, saturated_products
from tests.models.zoo import ZOO
from tests.models.zoo_build import Build

STEP_X, STEP_W = 0.25, 0.5


def layer(
    codes: Ints,
    op: str = "Conv",
    *,
    x: tuple[int, int] = (TensorProto.UINT8, 0),
    weight_type: int = TensorProto.INT8,
    zero: int = 0,
    bias: npt.ArrayLike | None = None,
    step: float = STEP_X,
    out_step: float = 1e4,
    **attrs: Any,
) -> onnx.ModelProto:
    """A layer with just these weight codes; coarse output steps, so that sums fit."""
    b = Build(17)
    shape = {
        "Conv": [1, codes.shape[1] * attrs.get("group", 1), *codes.shape[2:]],
        "ConvTranspose": [1, codes.shape[0], *codes.shape[2:]],
    }.get(op, [1, codes.shape[-1 if attrs.get("transB") else -2]])
    source = b.qdq(b.input("x", shape), step, x[1], x[0])
    weight = b.op(
        "DequantizeLinear",
        b.codes(codes, weight_type),
        b.init(np.float32(STEP_W)),
        b.codes(np.asarray(zero), weight_type),
    )
    extra = [] if bias is None else [b.init(np.asarray(bias, np.float32))]
    y = b.op(op, source, weight, *extra, **attrs)
    return b.model(b.qdq(y, out_step, 128, TensorProto.UINT8))


def only(proto: onnx.ModelProto) -> Bounds:
    (found,) = bounds(canonical(from_proto(proto))[0])
    return found


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(
    ("op", "shape", "attrs"),
    [
        ("Conv", (6, 3, 3, 3), {}),
        ("Conv", (6, 1, 3, 3), {"group": 6}),
        ("Conv", (4, 2, 3, 1), {"group": 2}),
        ("ConvTranspose", (6, 3, 3, 3), {}),
        ("ConvTranspose", (6, 2, 3, 3), {"group": 2}),
        ("Gemm", (7, 12), {}),
        ("Gemm", (12, 7), {"transB": 1}),
        ("MatMul", (7, 12), {}),
        ("MatMul", (3, 7, 5), {}),
        ("MatMul", (2, 3, 4, 5), {}),
    ],
)
def test_bounds_are_the_same_in_pieces(
    op: str, shape: tuple[int, ...], attrs: dict[str, int], zero: int
) -> None:
    codes = np.random.default_rng(0).integers(-128, 128, shape)
    proto = layer(codes, op, zero=zero, **attrs)
    whole = only(proto)
    for size in (1, 10, 30, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pieces, "PIECE", size)
            found = only(proto)
        for field in ("low", "high", "channel", "pair_low", "pair_high"):
            assert getattr(found, field) == getattr(whole, field), (field, size)


# -- the arithmetic ----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_ends_are_those_of_all_inputs(data: st.DataObject) -> None:
    """Against every combination of the two ends of the input range, by brute force."""
    k = data.draw(st.integers(1, 5))
    rows = data.draw(st.lists(st.integers(-128, 127), min_size=3 * k, max_size=3 * k))
    codes = np.array(rows, np.int64).reshape(3, k)
    signed = data.draw(st.booleans())
    lo, hi = (-128, 127) if signed else (0, 255)
    zx, zw = data.draw(st.integers(lo, hi)), data.draw(st.integers(-20, 20))
    kind = TensorProto.INT8 if signed else TensorProto.UINT8
    found = only(layer(codes, "Gemm", x=(kind, zx), zero=zw, transB=1))
    ends = np.array(np.meshgrid(*[[lo, hi]] * k)).reshape(k, -1)
    sums = (codes - zw) @ (ends - zx)
    assert (found.low, found.high) == (min(sums.min(), 0), max(sums.max(), 0)) or (
        (found.low, found.high) == (sums.min(), sums.max())
    )
    pairs = saturated_products(codes, ends + (128 if signed else 0), clip=False)
    assert (found.pair_low, found.pair_high) == (min(pairs.min(), 0), max(pairs.max(), 0))


def test_a_bias_counts_in_steps_of_the_sums() -> None:
    codes = np.full((1, 2, 1, 1), 3)
    plain, moved = only(layer(codes)), only(layer(codes, bias=[1e6]))
    assert plain.high == 2 * 255 * 3
    assert moved.high == plain.high + round(1e6 / (STEP_X * STEP_W))
    assert moved.low == 0


def test_an_accumulator_that_overflows() -> None:
    codes = np.full((2, 4, 3, 3), 1)
    assert only(layer(codes, bias=[0, 0])).fits_accumulator
    found = only(layer(codes, bias=[0, -4e8]))
    assert not found.fits_accumulator
    assert found.channel == 1
    assert found.low < -(2**31)


def test_long_sums_overflow_without_a_bias() -> None:
    codes = np.full((70_000, 1), 127)
    found = only(layer(codes, "Gemm"))
    assert found.high == 70_000 * 127 * 255 > 2**31
    assert not found.fits_accumulator


@pytest.mark.parametrize(
    ("codes", "safe"),
    [
        ([64, 64], True),  # 2 * 255 * 64 = 32640
        ([65, 64], False),  # 255 * 129 = 32895
        ([127, 1], True),
        ([127, 2], False),
        ([127, -127], True),  # opposite signs do not add up
        ([-64, -64], True),
        ([-128, -1], False),
        ([127, 0, 0, 127], True),  # not neighbours in a pair
        ([0, 127, 127, 0], True),
    ],
)
def test_pairs(codes: list[int], safe: bool) -> None:
    rows = np.array([codes])
    assert only(layer(rows, "Gemm", transB=1)).fits_pairs is safe
    assert only(layer(rows[..., None, None])).fits_pairs is safe


def test_unsigned_weights_and_depthwise_layers_form_no_pairs() -> None:
    high = np.full((1, 4, 1, 1), 255)
    assert only(layer(high, weight_type=TensorProto.UINT8)).fits_pairs
    assert only(layer(np.full((4, 1, 3, 3), 127), group=4)).fits_pairs
    assert not only(layer(np.full((4, 2, 3, 3), 127), group=2)).fits_pairs


def test_a_conv_must_fit_in_both_orders() -> None:
    across = np.zeros((1, 2, 1, 2), np.int64)
    across[0, :, 0, 0] = 127  # neighbours with channels innermost
    along = np.zeros((1, 2, 1, 2), np.int64)
    along[0, 0, 0, :] = 127  # neighbours with the window innermost
    assert not only(layer(across)).fits_pairs
    assert not only(layer(along)).fits_pairs


def test_layers_without_codes_have_no_bounds() -> None:
    assert list(bounds(canonical(from_proto(ZOO["qdq_int16_activations"]()))[0])) == []
    assert list(bounds(canonical(from_proto(ZOO["qdq_float8"]()))[0])) == []
    assert list(bounds(canonical(from_proto(ZOO["opset_17"]()))[0])) == []


# -- real kernels ------------------------------------------------------------------------------


def worst_inputs(codes: Ints) -> Ints:
    """For each channel and each end: input codes that make every pair as large as it gets."""
    flat = codes.reshape(codes.shape[0], -1)
    high = np.where(flat > 0, 255, 0)
    return np.concatenate([high, 255 - high])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_what_is_safe_is_computed_alike_in_the_default_session(data: st.DataObject) -> None:
    """Also where nothing saturates; on a CPU without VNNI this is what the prediction says."""
    seed = data.draw(st.integers(0, 2**16))
    shape = data.draw(st.sampled_from([(6, 8), (5, 33), (4, 6, 1, 1), (4, 3, 3, 3), (6, 1, 3, 3)]))
    top = data.draw(st.sampled_from([40, 64, 90, 127]))
    codes = np.random.default_rng(seed).integers(-top, top + 1, shape)
    proto, feeds = case(codes)
    safe = only(proto).fits_pairs
    results = [[next(iter(run.run(f).values())) for f in feeds] for run in sessions(proto)]
    same = all(np.array_equal(a, b) for a, b in zip(*results, strict=True))
    if safe:
        assert same


def sessions(proto: onnx.ModelProto) -> list[Any]:
    return [deployed(proto), shipped(proto)]


def case(codes: Ints) -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
    """A layer with these codes and the inputs that strain it most."""
    group = codes.shape[0] if codes.ndim == 4 and codes.shape[1] == 1 else 1
    span = 255.0 * np.abs(codes).reshape(codes.shape[0], -1).sum(axis=1).max() * STEP_X * STEP_W
    how: dict[str, Any] = {"out_step": float(span) / 120}
    proto = (
        layer(codes, "Gemm", transB=1, **how)
        if codes.ndim == 2
        else layer(codes, group=group, **how)
    )
    rows = worst_inputs(codes)
    feeds = []
    for row in rows:
        if codes.ndim == 2:
            x = row[None]
        elif group > 1:
            x = np.broadcast_to(row.reshape(1, 1, *codes.shape[2:]), (1, group, *codes.shape[2:]))
        else:
            x = row.reshape(1, *codes.shape[1:])
        feeds.append({"x": (x * STEP_X).astype(np.float32)})
    return proto, feeds


@pytest.mark.parametrize("shape", [(2, 8), (2, 8, 1, 1), (2, 4, 3, 3)], ids=str)
def test_what_is_unsafe_saturates(shape: tuple[int, ...]) -> None:
    codes = np.full(shape, 127)
    proto, feeds = case(codes)
    assert not only(proto).fits_pairs
    flat, rows = codes.reshape(codes.shape[0], -1), worst_inputs(codes)
    wrong, right = (saturated_products(flat, rows.T, clip=c).sum(axis=1) for c in (True, False))
    assert (wrong != right).any()
    exact, default = ([next(iter(run.run(f).values())) for f in feeds] for run in sessions(proto))
    off = max(np.abs(a - b).max() for a, b in zip(exact, default, strict=True))
    assert (off > 0) == cpu_saturates()
