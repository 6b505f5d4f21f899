"""One pass over the samples: values, errors, and models that cannot be run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.errors import LoadError
from onnxq.reporting.measured import measure, placed_activations, quantized_activations
from tests.models.build import parse, parse_filled, quantize
from tests.models.reported import float_network, images, quantized_network


def test_quantized_tensors_have_the_names_of_the_float_network() -> None:
    model = quantize(parse("g (float[4] x) => (float[4] y) { u = Relu(x)\n y = Neg(u) }"), "u")
    quantize(model, "y")
    names = quantized_activations(model)
    assert names["u"] == "u"
    assert list(names.values()) == ["u", "y"]  # an output keeps its name
    assert "y" not in names


def test_a_float_model_shows_what_the_backend_would_quantize() -> None:
    model = float_network()
    names = placed_activations(model, model, find_backend("tensorrt"))
    assert "image" in names
    assert "stem.relu.out" in names


def test_values_and_errors_in_one_pass() -> None:
    passes = 0

    def feeds() -> Iterator[dict[str, Any]]:
        nonlocal passes
        passes += 1
        yield from images(3)

    model = quantized_network()
    names = quantized_activations(model)
    found = measure(model, float_network(), feeds(), watched=names)
    assert passes == 1
    assert (found.samples, found.random) == (3, False)
    assert set(found.seen) == set(names)
    assert found.seen["image"].histogram.total == 3 * 3 * 32 * 32
    assert 20 < found.errors["logits"].sqnr < 60
    assert 20 < found.errors["stem.relu.out"].sqnr < 60
    assert found.report is not None
    assert found.errors["logits"].sqnr == found.report.outputs[0].sqnr


def test_some_of_the_samples() -> None:
    found = measure(quantized_network(), float_network(), images(4), most=2)
    assert found.samples == 2


def test_values_alone() -> None:
    found = measure(quantized_network(), None, images(2), watched=["image", "pool.out"])
    assert found.report is None
    assert found.samples == 2
    assert set(found.seen) == {"image", "pool.out"}


def test_random_inputs_tell_nothing_about_ranges() -> None:
    found = measure(quantized_network(), float_network(), None, watched=["image"], count=2)
    assert (found.samples, found.random, dict(found.seen)) == (2, True, {})


def test_nothing_to_run() -> None:
    assert measure(quantized_network(), None, None).samples == 0


def test_factors_of_smoothing_are_no_error() -> None:
    """b = x * 4 and its next layer / 4: the same network, and the same tensor but for a factor."""
    body = """g (float[2,6] x) => (float[2,3] y) { a = Mul(x, f)\n y = MatMul(a, w) }"""
    first = parse_filled(body, f=(6,), w=(6, 3))
    second = first.clone()
    (mul,), (product,) = second.nodes("Mul"), second.nodes("MatMul")
    gains = np.array([1, 2, 4, 8, 0.5, 1], np.float32)
    mul.inputs[1].values = mul.inputs[1].values * gains
    product.inputs[1].values = product.inputs[1].values / gains[:, None]
    data = [{"x": np.random.default_rng(n).normal(size=(2, 6)).astype(np.float32)} for n in (0, 1)]
    found = measure(second, first, data).errors["a"]
    assert found.rescaled
    assert found.sqnr > 100
    assert not measure(second, first, data).errors["y"].rescaled


def test_values_that_are_not_finite_are_left_out_with_a_note() -> None:
    model = parse("g (float[2] x) => (float[2] y) { u = Log(x)\n y = Neg(u) }")
    data = [{"x": np.array([1, -1], np.float32)}]
    found = measure(model, None, data, watched=["u", "x"])
    assert set(found.seen) == {"x"}
    assert "'u' contains NaN" in found.notes


def test_a_model_that_does_not_run_is_told() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Nothing(x) }")
    data = [{"x": np.zeros(2, np.float32)}]
    for found in (measure(model, None, data), measure(model, model, None)):
        assert found.refusal is not None
        assert "Nothing" in found.refusal[0]


def test_wrong_data_are_an_error() -> None:
    with pytest.raises(LoadError):
        measure(quantized_network(), None, "nowhere.npz")
