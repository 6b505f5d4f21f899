"""What an affine step makes of a layer's weight and bias, against float64 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.folding.affine import Affine, CannotFold, quiet
from onnxq.folding.linear import (
    LinearLayer,
    bias_add,
    bias_of,
    read_layer,
    rounded,
    scaled_inputs,
    scaled_outputs,
    weight_value,
)
from onnxq.folding.rescale_weight import Rescaled
from onnxq.graph import Model, from_proto
from tests.models.build import run, tensor, weight
from tests.models.zoo_build import Build

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(op: str, x: tuple[int, ...], *constants: np.ndarray, **attrs: Any) -> Model:
    b = Build()
    args = [b.init(c, f"c{i}") for i, c in enumerate(constants)]
    return from_proto(b.model(b.op(op, b.input("x", x), *args, **attrs)))


def layer_of(op: str, x: tuple[int, ...], *constants: np.ndarray, **attrs: Any) -> LinearLayer:
    return read_layer(model_of(op, x, *constants, **attrs).nodes(op)[0])


# -- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "x", "w", "attrs", "channels", "rank"),
    [
        ("Conv", (1, 4, 5, 5), (6, 2, 3, 3), {"group": 2}, 6, 4),
        ("Conv", (1, 4, 5), (6, 4, 3), {}, 6, 3),
        ("ConvTranspose", (1, 4, 5, 5), (4, 3, 3, 3), {"group": 2}, 6, 4),
        ("Gemm", (2, 5), (5, 3), {}, 3, 2),
        ("Gemm", (2, 5), (3, 5), {"transB": 1}, 3, 2),
        ("MatMul", (2, 5), (5, 3), {}, 3, 2),
        ("MatMul", (2, 4, 5), (5, 3), {}, 3, 3),
        ("MatMul", (5,), (5, 3), {}, 3, 1),
        ("MatMul", (4, 5), (2, 5, 3), {}, 3, 3),
    ],
)
def test_layers_are_read(
    op: str, x: tuple[int, ...], w: tuple[int, ...], attrs: Any, channels: int, rank: int
) -> None:
    layer = layer_of(op, x, floats(*w), **attrs)
    assert (layer.layout.channels, layer.rank) == (channels, rank)
    assert layer.fake is None


def test_matmul_of_unknown_rank() -> None:
    model = model_of("MatMul", (2, 5), floats(5, 3))
    node = model.nodes("MatMul")[0]
    for t in (node.inputs[0], node.outputs[0]):
        t.shape = None
    layer = read_layer(node)
    assert layer.rank is None
    assert layer.layout.vector(floats(3)) is not None
    assert layer.layout.vector(floats(1, 3)) is None, "the output may have rank 1"


def test_a_weight_known_at_run_time_only() -> None:
    b = Build()
    x, w = b.input("x", [1, 2, 3, 3]), b.input("w", [2, 2, 1, 1])
    model = from_proto(b.model(b.op("Conv", x, b.op("Relu", w)), b.op("Conv", x, w)))
    with pytest.raises(CannotFold, match="comes from 'Relu_node"):
        read_layer(model.nodes("Conv")[0])
    with pytest.raises(CannotFold, match=r"'w' .* supplied by the caller"):
        read_layer(model.nodes("Conv")[1])


def test_quantized_weight_not_yet_read_names_the_pass() -> None:
    b = Build()
    w = b.qdq(b.init(floats(2, 2, 1, 1)), 0.1)
    model = from_proto(b.model(b.op("Conv", b.input("x", [1, 2, 3, 3]), w)))
    with pytest.raises(CannotFold, match="run 'read-qdq' first"):
        read_layer(model.nodes("Conv")[0])


def test_vector_weight_is_no_layer() -> None:
    with pytest.raises(CannotFold, match="has 1 dimensions"):
        layer_of("MatMul", (2, 5), floats(5))


@pytest.mark.parametrize("op", ["Mul", "Div"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_product_of_constants_is_rounded_as_a_runtime_does(op: str, dtype: type) -> None:
    b = Build()
    a, f = floats(4, 3, 3, 3).astype(dtype), (floats(4, 1, 1, 1) + 3).astype(dtype)
    model = from_proto(b.model(b.op(op, b.init(a), b.init(f), out="w")))
    value = weight_value(tensor(model, "w"))
    assert value is not None
    assert value.dtype == dtype
    np.testing.assert_array_equal(value, run(model)[0])


# -- bias -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (1, 1)])
@pytest.mark.parametrize("beta", [1.0, -2.0])
def test_gemm_bias_is_beta_times_c(shape: tuple[int, ...], beta: float) -> None:
    c = floats(*shape)
    bias, dtype = bias_of(layer_of("Gemm", (2, 5), floats(5, 3), c, beta=beta))
    assert bias is not None
    assert dtype == np.float32
    np.testing.assert_array_equal(bias, np.broadcast_to(c.astype(float) * beta, (1, 3))[0])


def test_gemm_without_bias_or_with_beta_0() -> None:
    assert bias_of(layer_of("Gemm", (2, 5), floats(5, 3)))[0] is None
    assert bias_of(layer_of("Gemm", (2, 5), floats(5, 3), floats(3), beta=0.0))[0] is None


@pytest.mark.parametrize("shape", [(2, 3), (2, 1)])
def test_gemm_bias_over_rows_is_declined(shape: tuple[int, ...]) -> None:
    with pytest.raises(CannotFold, match="not one value for each of 3 channels"):
        bias_of(layer_of("Gemm", (2, 5), floats(5, 3), floats(*shape)))


def test_conv_bias() -> None:
    c = floats(4)
    bias, _ = bias_of(layer_of("Conv", (1, 2, 3, 3), floats(4, 2, 1, 1), c))
    np.testing.assert_array_equal(bias, c)
    assert bias_of(layer_of("Conv", (1, 2, 3, 3), floats(4, 2, 1, 1)))[0] is None


def test_bias_add_is_the_only_reader_and_constant() -> None:
    b = Build()
    x, w = b.input("x", [2, 5]), b.init(floats(5, 3))
    biased = b.op("Add", b.init(floats(3)), b.op("MatMul", x, w))
    plain = b.op("MatMul", x, w)
    twice = b.op("MatMul", x, w)
    ends = [b.op("Add", twice, b.init(floats(3))), b.op("Add", plain, biased), b.op("Relu", twice)]
    model = from_proto(b.model(*ends))
    first, second, third = model.nodes("MatMul")
    found = bias_add(first, model)
    assert found is not None
    assert found.outputs[0].name == biased
    assert bias_add(second, model) is None
    assert bias_add(third, model) is None


# -- arithmetic -------------------------------------------------------------------------------


def test_outputs_are_scaled_in_float64_and_rounded_once() -> None:
    w, gain = floats(4, 2, 3, 3), RNG.uniform(-2, 2, 4)
    made = scaled_outputs(layer_of("Conv", (1, 2, 5, 5), w), gain)
    assert isinstance(made, np.ndarray)
    want = (w.astype(np.float64) * gain.reshape(4, 1, 1, 1)).astype(np.float32)
    np.testing.assert_array_equal(made, want)


def test_quantized_outputs_are_rescaled() -> None:
    model = weight(model_of("Conv", (1, 2, 5, 5), floats(4, 2, 3, 3)), "c0")
    layer = read_layer(model.nodes("Conv")[0])
    assert layer.fake is not None
    made = scaled_outputs(layer, np.array([1.0, 2.0, -1.0, 0.0]))
    assert isinstance(made, Rescaled)
    np.testing.assert_allclose(made.params.scale, [0.1, 0.2, 0.1, 0.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "x", "w", "attrs"),
    [
        ("Conv", (2, 4, 5, 5), (6, 4, 3, 3), {}),
        ("Conv", (2, 4, 5, 5), (6, 2, 3, 2), {"group": 2, "strides": [2, 1]}),
        ("Conv", (2, 4, 5), (8, 1, 3), {"group": 4, "auto_pad": "VALID"}),
        ("Gemm", (2, 4), (4, 3), {"alpha": 0.5}),
        ("Gemm", (2, 4), (3, 4), {"transB": 1}),
        ("MatMul", (2, 4), (4, 3), {}),
    ],
)
def test_a_step_in_front_of_the_layer(
    op: str, x: tuple[int, ...], w: tuple[int, ...], attrs: Any
) -> None:
    weights, data = floats(*w), floats(*x)
    gain, shift = RNG.uniform(-2, 2, 4), RNG.uniform(-1, 1, 4)
    model = model_of(op, x, weights, **attrs)
    scaled, added = scaled_inputs(read_layer(model.nodes(op)[0]), Affine(gain, shift))
    view = (1, 4) + (1,) * (len(x) - 2)
    (want,) = run(model, (data * gain.reshape(view) + shift.reshape(view)).astype(np.float32))
    (got,) = run(model_of(op, x, scaled, **attrs), data)
    got = got + added.reshape((1, -1) + (1,) * (got.ndim - 2))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attrs", [{"pads": [0, 1, 0, 0]}, {"auto_pad": "SAME_UPPER"}])
def test_zero_padding_admits_a_gain_but_no_shift(attrs: Any) -> None:
    layer = layer_of("Conv", (1, 2, 5, 5), floats(3, 2, 3, 3), **attrs)
    scaled, added = scaled_inputs(layer, Affine(np.array([2.0, 0.5]), 0.0))
    assert not added.any()
    np.testing.assert_array_equal(scaled, layer.weight * np.float32([[[[2]], [[0.5]]]]))
    with pytest.raises(CannotFold, match="pads with zeros"):
        scaled_inputs(layer, Affine(1.0, np.array([0.0, 1.0])))


def test_quantized_weight_takes_no_gain_per_input() -> None:
    model = weight(model_of("MatMul", (2, 4), floats(4, 3)), "c0")
    with pytest.raises(CannotFold, match="its scales cannot contain"):
        scaled_inputs(read_layer(model.nodes("MatMul")[0]), Affine(2.0, 0.0))


@quiet
def test_rounding_keeps_the_type_and_declines_what_it_would_lose() -> None:
    half, single = np.dtype(np.float16), np.dtype(np.float32)
    assert rounded(np.array([1.0001]), half, "weight").dtype == half
    with pytest.raises(CannotFold, match="leaves the range of float16"):
        rounded(np.array([1.0, 7e4]), half, "bias")
    with pytest.raises(CannotFold, match="too small for float16"):
        rounded(np.array([1e-7, 3.3e-7]), half, "weight")
    assert rounded(np.array([1e-7, 3.3e-7]), single, "weight").dtype == single
    # A finite array whose sum is not.
    assert np.isfinite(rounded(np.full(4, 3e38), single, "weight")).all()
