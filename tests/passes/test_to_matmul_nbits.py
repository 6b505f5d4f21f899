"""Block-quantized weights to MatMulNBits: packed exactly, read back the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.storage.node_metadata import metadata
from passes.read_matmul_nbits import MATMUL, ReadMatmulNbits
from passes.to_matmul_nbits import ToMatmulNbits
from passes.to_qdq import ToQdq
from tests.checks.dialect_round_trip import (
    FIXTURES,
    assert_same_again,
    fixture,
    round_trip,
    rows_without_source,
)
from tests.models.build import apply, bit_equal, ops, parse, quantize, reasons, run, weight

RANDOM = np.random.default_rng(0)


def layer(
    text: str = "y = MatMul(x, w)", shape: tuple[int, ...] = (40, 6), out: int = 6, count: int = 40
) -> Model:
    """A layer on x of shape [3, count] with the random weight w."""
    model = parse(f"g (float[3,{count}] x, float[{shape[0]}] w) => (float[3,{out}] y) {{ {text} }}")
    proto = model.to_proto()
    del proto.graph.input[1]
    values = np.random.default_rng(1).normal(0, 0.2, shape).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(values, "w"))
    return from_proto(proto)


def blocks(
    model: Model, kind: str = "uint4", zero: int | None = None, block: int = 16, axis: int = 0,
    shape: tuple[int, ...] = (40, 6), **fields: Any,
) -> Model:  # fmt: skip
    """The same with a block quantizer on w."""
    of_scale = tuple(-(-n // block) if i == axis else n for i, n in enumerate(shape))
    scale = np.random.default_rng(2).uniform(0.05, 0.1, of_scale).astype(np.float32)
    middle = 0 if not kind.startswith("u") else 1 << (int(kind[4:]) - 1)
    zeros = np.full(of_scale, middle if zero is None else zero)
    grid = {"qtype": kind, "scale": scale, "zero_point": zeros, "axis": axis, "block": block}
    return weight(model, "w", **grid, **fields)


def x_of(count: int = 40) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(3, count)).astype(np.float32)


def assert_computes(written: Model, model: Model, count: int = 40) -> None:
    (have,), (want,) = run(written, x_of(count)), run(model, x_of(count))
    assert np.abs(have - want).max() <= 1e-6 * np.abs(want).max()  # sums in another order


@pytest.mark.parametrize("kind", ["uint2", "uint4", "uint8", "int2", "int4", "int8"])
@pytest.mark.parametrize("zero", [None, 1])
def test_types(kind: str, zero: int | None) -> None:
    model = blocks(layer(), kind, zero)
    written, back = round_trip(model, ToMatmulNbits(), ReadMatmulNbits())
    assert rows_without_source(back) == rows_without_source(model)
    assert bit_equal(run(back, x_of()), run(model, x_of()))
    (node,) = written.nodes(MATMUL)
    bits = int(kind.lstrip("uint"))
    assert node.attrs == {"K": 40, "N": 6, "bits": bits, "block_size": 16}
    assert len(node.inputs) == (3 if zero is None or (kind, zero) == ("uint2", 2) else 4)
    assert bool(metadata(node)) == (not kind.startswith("u"))
    assert_computes(written, model)
    assert written.opset == 17, "no block Q/DQ, so no opset 21"


def test_codes_are_packed_by_rows_of_output_channels() -> None:
    model = blocks(layer())
    quantizer = model.nodes("onnxq::FakeQuantize")[0]
    scale, values = array(quantizer.inputs[1]), array(quantizer.inputs[0])
    assert scale is not None
    assert values is not None
    written, _ = apply(model, ToMatmulNbits())
    packed, scales = (array(t) for t in written.nodes(MATMUL)[0].inputs[1:3])
    assert packed is not None
    assert scales is not None
    assert packed.shape == (6, 3, 8)
    np.testing.assert_array_equal(scales, scale.T)
    first = np.clip(np.rint(values[:2, 0] / scale[0, 0]) + 8, 0, 15).astype(int)
    assert packed[0, 0, 0] == first[0] | first[1] << 4


def test_narrow_range_is_kept() -> None:
    model = blocks(layer(), "int4", lo=-7)
    assert_same_again(model, ToMatmulNbits(), ReadMatmulNbits())


def test_gemm_becomes_a_product() -> None:
    model = blocks(layer("y = Gemm<transB=1>(x, w)", (6, 40)), axis=1, shape=(6, 40))
    written, trace = apply(model, ToMatmulNbits())
    assert not trace.skips
    assert ops(written) == ["MatMulNBits"]
    assert_computes(written, model)
    model = blocks(layer("y = Gemm(x, w)"))
    written, _ = apply(model, ToMatmulNbits())
    assert_computes(written, model)


def test_two_readers_share_the_codes() -> None:
    model = blocks(layer("a = MatMul(x, w)\n b = Neg(x)\n c = MatMul(b, w)\n y = Sub(a, c)"))
    written = assert_same_again(model, ToMatmulNbits(), ReadMatmulNbits())
    first, second = written.nodes(MATMUL)
    assert first.inputs[1] is second.inputs[1]


@pytest.mark.parametrize("shape", [[], [1], [6], [3, 1], [3, 6]])
@pytest.mark.parametrize("transposed", [0, 1])
def test_the_bias_of_a_gemm_is_added(shape: list[int], transposed: int) -> None:
    stored = (6, 40) if transposed else (40, 6)
    proto = layer(f"y = Gemm<transB={transposed}>(x, w)", stored).to_proto()
    proto.graph.node[0].input.append("b")
    bias = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(bias, "b"))
    model = blocks(from_proto(proto), axis=transposed, shape=stored)
    written, _ = apply(model, ToMatmulNbits())
    assert ops(written) == ["MatMulNBits", "Add"]
    assert_computes(written, model)
    back, _ = apply(written, ReadMatmulNbits())
    assert_computes(back, model)


@pytest.mark.parametrize(
    ("text", "grid", "why"),
    [
        ("y = MatMul(x, w)", {"block": 8}, "8 codes"),
        ("y = MatMul(x, w)", {"block": 20}, "20 codes"),
        ("y = MatMul(x, w)", {"kind": "int16"}, "int16"),
        ("y = MatMul(x, w)", {"axis": 1}, "do not run along its blocks"),
        ("y = Gemm<alpha=2.0>(x, w)", {}, "a Gemm that scales"),
        ("n = Neg(w)\n y = MatMul(x, n)", {}, "not a MatMul"),
    ],
)
def test_what_does_not_fit_stays_for_the_next_writer(
    text: str, grid: dict[str, Any], why: str
) -> None:
    model = blocks(layer(text), **grid)
    left, trace = apply(model, ToMatmulNbits())
    assert why in reasons(trace)
    assert not trace.rewrites
    assert bit_equal(run(left, x_of()), run(model, x_of()))
    written, _ = apply(left, ToQdq())
    assert "FakeQuantize" not in ops(written)
    assert bit_equal(run(written, x_of()), run(model, x_of()))


def test_quantizers_without_blocks_are_none_of_its_business() -> None:
    model = weight(layer(), "w", scale=np.float32(0.1))
    _, trace = apply(model, ToMatmulNbits())
    assert (trace.rewrites, trace.skips) == ([], [])


def test_activation_in_blocks_stays() -> None:
    model = parse("g (float[3,32] x) => (float[3,32] y) { y = Relu(x) }")
    scale = np.full((3, 2), 0.1, np.float32)
    quantize(model, "x", scale=scale, zero_point=np.zeros((3, 2)), axis=1, block=16)
    _, trace = apply(model, ToMatmulNbits())
    assert "run time" in reasons(trace)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.sampled_from(["uint2", "uint4", "uint8", "int4", "int8"]),
    st.integers(2, 70),
    st.integers(1, 5),
    st.sampled_from([16, 32]),
    st.integers(0, 1),
)
def test_random_round_trip(kind: str, count: int, columns: int, block: int, zero: int) -> None:
    shape = (count, columns)
    model = blocks(layer("y = MatMul(x, w)", shape, columns, count), kind, zero, block, shape=shape)
    written = assert_same_again(model, ToMatmulNbits(), ReadMatmulNbits())
    assert_computes(written, model, count)


@pytest.mark.skipif(not FIXTURES.exists(), reason="no models of other tools beside the repository")
@pytest.mark.parametrize("kind", ["int4", "int4-asym", "int8"])
def test_files_of_onnxruntime_come_back(kind: str) -> None:
    model, _ = apply(fixture(f"A2/ort-matmulnbits-{kind}"), ReadMatmulNbits())
    written, back = round_trip(model, ToMatmulNbits(), ReadMatmulNbits())
    assert len(written.nodes(MATMUL)) == 7
    assert rows_without_source(back) == rows_without_source(model)
