"""Codes read with another grid than they were written with: the chain is exact."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.graph import from_proto
from onnxq.quant.qtypes import QTYPES, qtype
from passes.read_qdq import ReadQdq
from passes.to_qdq import ToQdq
from tests.models.build import apply, bit_equal, ops, reasons, run
from tests.models.zoo_build import Build

FLOAT8 = [t.name for t in QTYPES.values() if t.floating]


@pytest.mark.parametrize("first", ["int8", "uint8", "int16", "uint16"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.floats(2.0**-20, 2.0**10, width=32),
    st.floats(2.0**-20, 2.0**10, width=32),
    st.data(),
)
def test_requantization_is_two_quantizers_bit_for_bit(
    first: str, s1: float, s2: float, data: st.DataObject
) -> None:
    """Every code of the type, whatever the scales and zero points at both ends."""
    kind = qtype(first)
    zeros = data.draw(st.lists(st.integers(kind.lo, kind.hi), min_size=2, max_size=2))
    z1, z2 = (np.int64(z) for z in zeros)
    proto = requantizing(first, np.float32(s1), z1, np.float32(s2), z2)
    read, trace = apply(from_proto(proto), ReadQdq())
    assert not trace.skips
    same = (s1, z1) == (s2, z2)
    assert len(read.nodes(FAKE_QUANTIZE)) == (1 if same else 2)
    codes = np.arange(kind.lo - 2, kind.hi + 3).reshape(1, 1, -1)
    x = ((codes - z1) * np.float64(s1)).astype(np.float32)
    assert bit_equal(run(proto, x), run(read, x))
    again, second = apply(from_proto(read.to_proto()), ReadQdq())
    assert not second.rewrites
    written, _ = apply(again, ToQdq())
    assert bit_equal(run(proto, x), run(written, x))


def requantizing(kind: str, s1: object, z1: object, s2: object, z2: object) -> onnx.ModelProto:
    """x → Q(s1, z1) → DQ(s2, z2), x of rank 3."""
    b = Build(21)
    x = b.input("x", [1, "C", "N"])
    dtype = qtype(kind).onnx
    axis = {"axis": 1} if np.ndim(s1) else {}
    q = b.op("QuantizeLinear", x, b.init(s1), b.codes(z1, dtype), **axis)
    axis = {"axis": -2} if np.ndim(s2) else {}
    return b.model(b.op("DequantizeLinear", q, b.init(s2), b.codes(z2, dtype), **axis))


@pytest.mark.parametrize("ends", ["both", "first", "second"])
def test_requantization_per_channel(ends: str) -> None:
    scale, zero = np.float32([0.1, 0.02, 3]), np.array([0, 7, 255])
    other, shift = np.float32([0.3, 0.02, 1]), np.array([128, 7, 9])
    first = (scale, zero) if ends != "second" else (np.float32(0.1), np.int64(9))
    second = (other, shift) if ends != "first" else (np.float32(0.1), np.int64(9))
    proto = requantizing("uint8", *first, *second)
    read, _ = apply(from_proto(proto), ReadQdq())
    assert len(read.nodes(FAKE_QUANTIZE)) == 2
    x = np.linspace(-40, 40, 999, dtype=np.float32).reshape(1, 3, 333)
    assert bit_equal(run(proto, x), run(read, x))


@pytest.mark.parametrize("kind", FLOAT8)
def test_requantization_of_float8(kind: str) -> None:
    proto = requantizing(kind, np.float32(0.1), np.int64(0), np.float32(0.37), np.int64(0))
    read, _ = apply(from_proto(proto), ReadQdq())
    assert len(read.nodes(FAKE_QUANTIZE)) == 2
    x = (np.random.default_rng(0).normal(size=(1, 1, 9999)) * 100).astype(np.float32)
    x[0, 0, :2] = 1e-6, -0.0
    assert bit_equal(run(proto, x), run(read, x))


def test_requantization_that_would_lose_digits_is_left_with_the_reason() -> None:
    proto = requantizing("int8", np.float32(1e-30), np.int64(0), np.float32(1), np.int64(0))
    read, trace = apply(from_proto(proto), ReadQdq())
    assert ops(read) == ["QuantizeLinear", "DequantizeLinear"]
    assert "differs too much from that of its QuantizeLinear" in reasons(trace)
