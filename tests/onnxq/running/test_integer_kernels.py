"""Against onnxruntime where its kernels cannot saturate, and against plain integer loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

from onnxq.errors import InvalidModelError
from onnxq.operators.integer_operators import MICROSOFT, QOPERATORS, SUMS
from onnxq.running.integer_kernels import KERNELS, compute, conv_sums, requantize

F32 = np.float32
U8, I8 = np.dtype(np.uint8), np.dtype(np.int8)
TYPES = ((U8, U8), (U8, I8), (I8, I8))
"""Types of input and weight for which onnxruntime has kernels."""


def generator() -> np.random.Generator:
    return np.random.default_rng(7)


def codes(dtype: np.dtype[Any], *shape: int) -> np.ndarray:
    ends = np.iinfo(dtype)
    return generator().integers(ends.min, ends.max + 1, shape).astype(dtype)


def weight(dtype: np.dtype[Any], *shape: int) -> np.ndarray:
    """Codes small enough that two products with any uint8 fit 16 bits: no kernel saturates."""
    low, high = (-60, 61) if dtype == I8 else (0, 256)
    return generator().integers(low, high, shape).astype(dtype)


def grid(scale: float, zero: int, dtype: np.dtype[Any]) -> list[np.ndarray]:
    return [np.asarray(scale, F32), np.asarray(zero, dtype)]


def onnxruntime(op: str, domain: str, inputs: Sequence[np.ndarray], **attrs: Any) -> np.ndarray:
    names = [f"i{k}" for k in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], domain=domain, **attrs)
    data = int(op == "QLinearWhere")
    first = helper.make_tensor_value_info(
        names[data], helper.np_dtype_to_tensor_dtype(inputs[data].dtype), inputs[data].shape
    )
    if op == "QLinearConcat":
        constants, feeds = list(zip(names, inputs, strict=True)), {}
    else:
        pairs = list(zip(names, inputs, strict=True))
        constants, feeds = pairs[:data] + pairs[data + 1 :], {names[data]: inputs[data]}
    graph = helper.make_graph(
        [node],
        "one",
        [first] if feeds else [],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(made.run(None, feeds)[0])


def assert_same(op: str, domain: str, inputs: Sequence[np.ndarray], **attrs: Any) -> None:
    got, want = compute(op, domain, inputs, attrs), onnxruntime(op, domain, inputs, **attrs)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


# -- sums of products, bit for bit ----------------------------------------------------------------


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("x_type", "w_type"), TYPES)
@pytest.mark.parametrize(
    ("attrs", "group"),
    [
        ({"pads": [1, 1, 1, 1], "strides": [2, 1]}, 1),
        ({"auto_pad": "SAME_UPPER"}, 6),
        ({"pads": [0, 1, 2, 0], "dilations": [2, 1]}, 2),
    ],
)
def test_qlinear_conv(
    x_type: np.dtype[Any], w_type: np.dtype[Any], attrs: Any, group: int, per_channel: bool
) -> None:
    w = weight(w_type, 6, 6 // group, 3, 3)
    scale, zero = grid(0.002, 0 if w_type == I8 else 120, w_type)
    if per_channel:
        scale, zero = generator().uniform(0.001, 0.003, 6).astype(F32), np.full(6, zero)
    bias = generator().integers(-5000, 5000, 6).astype(np.int32)
    x = [codes(x_type, 2, 6, 9, 9), *grid(0.03, 3, x_type)]
    inputs = [*x, w, scale, zero, *grid(0.1, 7, x_type), bias]
    assert_same("QLinearConv", "", inputs, group=group, **attrs)
    assert_same("QLinearConv", "", inputs[:-1], group=group, **attrs)


@pytest.mark.parametrize("x_type", [U8, I8])
def test_qlinear_conv_with_channels_last(x_type: np.dtype[Any]) -> None:
    x = [codes(x_type, 1, 7, 5, 4), *grid(0.03, 3, x_type)]
    inputs = [*x, weight(I8, 3, 4, 3, 3), *grid(0.002, 0, I8), *grid(0.1, 7, x_type)]
    assert_same("QLinearConv", MICROSOFT, inputs, channels_last=1, pads=[1, 1, 1, 1])


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("a_type", "b_type"), TYPES)
def test_qlinear_matmul_and_gemm(
    a_type: np.dtype[Any], b_type: np.dtype[Any], per_channel: bool
) -> None:
    scale, zero = grid(0.002, 1, b_type)
    if per_channel:
        scale, zero = generator().uniform(0.001, 0.003, 7).astype(F32), np.full(7, zero)
    a, b = codes(a_type, 2, 5, 40), weight(b_type, 40, 7)
    left, result = grid(0.03, 3, a_type), grid(0.1, 7, a_type)
    assert_same("QLinearMatMul", "", [a, *left, b, scale, zero, *result])
    assert_same("MatMulInteger", "", [a, b, left[1], zero])
    bias = generator().integers(-5000, 5000, 7).astype(np.int32)
    for transposed in (0, 1):
        right = np.ascontiguousarray(b.T) if transposed else b
        inputs = [a[0], *left, right, scale, zero, bias]
        assert_same("QGemm", MICROSOFT, [*inputs, *result], transB=transposed, alpha=0.7)
        assert_same("QGemm", MICROSOFT, inputs, transB=transposed)


@pytest.mark.parametrize(("x_type", "w_type"), [*TYPES, (I8, U8)])
def test_conv_integer(x_type: np.dtype[Any], w_type: np.dtype[Any]) -> None:
    # The input is its kernel's second operand: int8 codes must be small there as well.
    x, w = weight(x_type, 2, 6, 9, 9), weight(w_type, 4, 6, 3, 3)
    zeros = [np.asarray(3, x_type), np.asarray(1, w_type)]
    assert_same("ConvInteger", "", [x, w, *zeros], pads=[1, 1, 1, 1], dilations=[2, 2])
    assert_same("ConvInteger", "", [x, w])


# -- the others: onnxruntime rounds in between, so a tie may fall to the other side ---------------


@pytest.mark.parametrize("dtype", [U8, I8])
def test_elementwise_operators(dtype: np.dtype[Any]) -> None:
    a = [codes(dtype, 3, 7, 50), *grid(0.03, 5, dtype)]
    b = [codes(dtype, 7, 50), *grid(0.021, 9, dtype)]
    lowest = int(np.iinfo(dtype).min)
    assert_same("QLinearAdd", MICROSOFT, [*a, *b, *grid(0.043, 40, dtype)])
    assert_same("QLinearMul", MICROSOFT, [*a, *b, *grid(0.143, 40, dtype)])
    assert_same("QLinearLeakyRelu", MICROSOFT, [*a, *grid(0.021, 9, dtype)], alpha=0.13)
    assert_same("QLinearSigmoid", MICROSOFT, [*a, *grid(1 / 256, 0, dtype)])
    mask = generator().integers(0, 2, (3, 7, 50)).astype(bool)
    assert_same("QLinearWhere", MICROSOFT, [mask, *a, *b, *grid(0.0517, 3, dtype)])
    joined = [*grid(0.0517, 3, dtype), *a, codes(dtype, 3, 2, 50), *grid(0.07, 50, dtype)]
    assert_same("QLinearConcat", MICROSOFT, joined, axis=1)
    shares = [*a, *grid(1 / 256, lowest, dtype)]
    for axis, opset in ((-1, 13), (1, 13), (1, 11), (2, 11)):
        assert_same("QLinearSoftmax", MICROSOFT, shares, axis=axis, opset=opset)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", [U8, I8])
def test_pooling(dtype: np.dtype[Any], last: int) -> None:
    x = [codes(dtype, 2, 5, 9, 9), *grid(0.03, 5, dtype)]
    whole = [*x, *grid(0.011, 9, dtype)]
    assert_same("QLinearGlobalAveragePool", MICROSOFT, whole, channels_last=last)
    for attrs in (
        {"pads": [1, 0, 1, 1], "kernel_shape": [3, 2]},
        {"pads": [1, 0, 1, 1], "kernel_shape": [3, 2], "count_include_pad": 1, "ceil_mode": 1},
        {"kernel_shape": [2, 2], "ceil_mode": 1},
    ):
        attrs |= {"strides": [2, 2], "channels_last": last}
        inputs = [*x, *grid(0.0213, 9, dtype)]
        got = compute("QLinearAveragePool", MICROSOFT, inputs, attrs).astype(int)
        off = np.abs(got - onnxruntime("QLinearAveragePool", MICROSOFT, inputs, **attrs))
        assert off.max() <= 1
        assert np.mean(off > 0) < 0.02


def test_reduce_mean_is_the_mean_of_real_values() -> None:
    """onnxruntime has no kernel for it."""
    x = codes(U8, 3, 4, 5)
    inputs = [x, *grid(0.5, 100, U8), *grid(0.25, 30, U8)]
    got = compute("QLinearReduceMean", MICROSOFT, inputs, {"axes": [1], "keepdims": 0})
    real = (x.astype(float) - 100).mean(1) / 2
    np.testing.assert_array_equal(got, np.clip(np.rint(real / 0.25) + 30, 0, 255))
    assert compute("QLinearReduceMean", MICROSOFT, inputs, {}).shape == (1, 1, 1)


# -- what saturating kernels get wrong ------------------------------------------------------------


def test_sums_are_exact_where_16_bits_are_not_enough() -> None:
    x, w = np.full((1, 64), 255, np.uint8), np.full((64, 2), 127, np.int8)
    got = compute("MatMulInteger", "", [x, w], {})
    np.testing.assert_array_equal(got, np.full((1, 2), 64 * 255 * 127))


def test_conv_sums_agree_with_plain_loops() -> None:
    x = codes(U8, 1, 4, 5, 6).astype(np.float64) - 11
    w = codes(I8, 6, 2, 3, 2).astype(np.float64)
    got = conv_sums(x, w, {"group": 2, "pads": [1, 0, 0, 1], "strides": [2, 1]})
    padded = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
    want = np.zeros((1, 6, 2, 6))
    for m, i, j in itertools.product(range(6), range(2), range(6)):
        part = padded[0, 2 * (m // 3) : 2 * (m // 3) + 2, 2 * i : 2 * i + 3, j : j + 2]
        want[0, m, i, j] = (part * w[m]).sum()
    np.testing.assert_array_equal(got, want)


def test_requantizing_rounds_half_to_even_and_clamps() -> None:
    sums = np.array([-1000.0, 1, 3, 5, 1000])
    got = requantize(sums, np.asarray(0.5, F32), np.asarray(10, np.uint8))
    np.testing.assert_array_equal(got, [0, 10, 12, 12, 255])


# -- completeness ---------------------------------------------------------------------------------


def test_there_is_a_kernel_for_every_integer_operator() -> None:
    assert set(KERNELS) == set(QOPERATORS) | set(SUMS)


def test_a_missing_scale_is_an_error() -> None:
    with pytest.raises(InvalidModelError, match="lacks a required input"):
        compute("QLinearSigmoid", MICROSOFT, [codes(U8, 3), None, None, *grid(0.1, 0, U8)], {})
