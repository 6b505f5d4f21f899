"""Layers before a maximum over positions, and what they would cost there."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.placing import Placing
from onnxq.calibration.trials.before_maxima import layers_before_maxima
from onnxq.graph import Model
from onnxq.quant.settings import Settings
from onnxq.workflows.quantize import quantize
from tests.models.build import parse

RNG = np.random.default_rng(0)
FEED = {"x": RNG.normal(size=(1, 8, 16, 16)).astype(np.float32)}

MAXIMUM = "z = GlobalMaxPool(s)"
FLATTENED = "r = LeakyRelu(q) \n s = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)"


def network(between: str = FLATTENED, end: str = MAXIMUM, last: int = 8) -> Model:
    """Two convolutions 3x3 with 64 and `last` outputs, a maximum, a product."""
    sizes = {"a": (64, 8, 3, 3), "b": (last, 64, 3, 3), "c": (last, 8)}
    weights = ", ".join(
        f"float[{', '.join(map(str, size))}] {name} = "
        f"{{{', '.join(f'{v:.3f}' for v in RNG.normal(size=int(np.prod(size))))}}}"
        for name, size in sizes.items()
    )
    return parse(f"""g (float[1, 8, 16, 16] x) => (float[1, 8] y) <{weights}> {{
        p = Conv<pads = [1, 1, 1, 1]>(x, a)
        h = Relu(p)
        k = MaxPool<kernel_shape = [4, 4], strides = [4, 4]>(h)
        q = Conv<pads = [1, 1, 1, 1]>(k, b)
        {between}
        {end}
        f = Flatten(z)
        y = MatMul(f, c)
    }}""")


def found(model: Model, target: str = "onnxruntime", rules: object = None) -> list[str]:
    return layers_before_maxima(Placing(model, find_backend(target), Settings.of(rules)), FEED)


@pytest.mark.parametrize(
    ("between", "end"),
    [
        (FLATTENED, MAXIMUM),
        ("s = Relu(q)", "z = ReduceMax<axes = [2, 3]>(s)"),
        ("r = Sigmoid(q) \n s = Mul(q, r)", MAXIMUM),
        ("r = ReduceMax<axes = [2]>(q)", "z = ReduceMax<axes = [3]>(r)"),
    ],
)
def test_the_last_layer(between: str, end: str) -> None:
    """Products: 64 * 72 * 256 and 8 * 576 * 16, 6 % of all."""
    assert found(network(between, end)) == ["q"]


@pytest.mark.parametrize(
    ("between", "end"),
    [
        ("s = Relu(q)", "z = GlobalAveragePool(s)"),
        ("s = Relu(q)", "t = GlobalMaxPool(s) \n u = GlobalAveragePool(s) \n z = Add(t, u)"),
        ("r = ReduceMax<axes = [2, 3]>(q)", "s = Sub(q, r) \n z = GlobalMaxPool(s)"),
    ],
)
def test_others_read_it_too(between: str, end: str) -> None:
    """An average is over many errors; a difference from the maximum shows all values."""
    assert found(network(between, end)) == []


def test_a_layer_with_many_products_is_quantized() -> None:
    """64 * 576 * 16 products of 1.8 million are a third."""
    assert found(network(last=64)) == []


def test_rules_and_targets() -> None:
    assert found(network(), rules=[["Conv", {"bits": 8}]]) == []
    assert found(network(), "tensorrt") == []


def test_it_takes_away_noise_and_the_summary_says_so() -> None:
    model = network()
    rng = np.random.default_rng(1)
    data = [{"x": rng.normal(size=(1, 8, 16, 16)).astype(np.float32)} for _ in range(8)]
    done = quantize(model, "onnxruntime", data, method="min-max")
    kept = quantize(model, "onnxruntime", data, method="min-max", settings=[["q", {"bits": 8}]])
    assert {row.tensor for row in done.table} >= {"a"}
    assert not {row.tensor for row in done.table} & {"b"}
    assert "b" in {row.tensor for row in kept.table}
    assert done.noise is not None
    assert kept.noise is not None
    assert done.noise.sqnr > kept.noise.sqnr + 1
    assert any("before a maximum" in note for note in done.notes)
