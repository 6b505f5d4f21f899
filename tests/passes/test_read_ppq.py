from __future__ import annotations

import numpy as np
import pytest

from onnxq import runtime
from passes.read_ppq import ReadPpq
from tests.build import apply, ops, parse, reasons


def spread(x: np.ndarray, stride: int, extra: int) -> np.ndarray:
    """What InsertZeros means, written out."""
    n, c, *sizes = x.shape
    out = np.zeros((n, c, *[(size - 1) * stride + 1 + extra for size in sizes]), x.dtype)
    out[(..., *[slice(None, (size - 1) * stride + 1, stride) for size in sizes])] = x
    return out


@pytest.mark.parametrize(("stride", "extra"), [(2, 0), (3, 0), (2, 1), (3, 2)])
def test_zeros_are_inserted_exactly(stride: int, extra: int) -> None:
    model = parse(
        f"""g (float[1,3,4,5] x) => (float[A,B,C,D] y) {{ y = InsertZeros
        <stride = [{stride}, {stride}], output_padding = [{extra}, {extra}]> (x) }}"""
    )
    read, trace = apply(model, ReadPpq())
    assert ops(read) == ["ConvTranspose"]
    assert len(trace.rewrites) == 1
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    assert np.array_equal(runtime.reference(read).run({"x": x})["y"], spread(x, stride, extra))


def test_channels_are_found_in_the_weight_of_the_convolution_behind() -> None:
    model = parse(
        """g (float[N,M,H,W] x, float[2,3,1,1] unused) => (float[A,B,C,D] y)
        <float[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.5}, int8 z = {0}> {
            r = Relu(x)
            i = InsertZeros <stride = [2, 2], output_padding = [0, 0]> (r)
            q = QuantizeLinear(i, s, z)
            d = DequantizeLinear(q, s, z)
            y = Conv(d, w)
        }"""
    )
    read, _ = apply(model, ReadPpq())
    (spreader,) = read.nodes("ConvTranspose")
    assert spreader.attrs["group"] == 3


def test_unknown_channels_are_left_with_the_reason() -> None:
    model = parse(
        """g (float[N,M,H,W] x) => (float[A,B,C,D] y) {
        y = InsertZeros <stride = [2, 2], output_padding = [0, 0]> (x) }"""
    )
    read, trace = apply(model, ReadPpq())
    assert ops(read) == ["InsertZeros"]
    assert "channels of 'x'" in reasons(trace)


def test_an_operator_of_that_name_in_another_domain_is_not_ppq() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = InsertZeros(x) }")
    read, trace = apply(model, ReadPpq())
    assert ops(read) == ["InsertZeros"]
    assert trace.rewrites == []
