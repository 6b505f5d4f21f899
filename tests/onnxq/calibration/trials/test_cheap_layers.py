"""Layers that stay float for having few products, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import Backend, chosen_backend, find_backend
from onnxq.calibration.placing import Placing
from onnxq.calibration.trials.cheap_layers import affordable_first_layers, cheap_layers
from onnxq.graph import Model
from onnxq.operators.op_kind import weight_of
from onnxq.quant.settings import Settings
from onnxq.workflows.quantize import quantize
from tests.models.build import parse, parse_filled


def network(first: int = 8, wide: int = 64, head: int = 4) -> Model:
    """Conv 1x1 with `first` outputs, Conv 3x3 with `wide`, Gemm on the average over all pixels."""
    rng = np.random.default_rng(0)
    shapes = {"a": (first, 1, 1, 1), "b": (wide, first, 3, 3), "c": (head, wide)}
    stored = ", ".join(
        f"float[{', '.join(map(str, shape))}] {name} = "
        f"{{{', '.join(f'{v:.3f}' for v in rng.normal(size=int(np.prod(shape))))}}}"
        for name, shape in shapes.items()
    )
    return parse(f"""g (float[N, 1, H, W] x) => (float[N, {head}] y) <{stored}> {{
        p = Conv(x, a)
        q = Relu(p)
        r = Conv<pads = [1, 1, 1, 1]>(q, b)
        s = Relu(r)
        t = GlobalAveragePool(s)
        u = Flatten(t)
        y = Gemm<transB = 1>(u, c)
    }}""")


def cheap(model: Model, target: Backend, rules: object = None) -> list[str]:
    feed = {"x": np.ones((1, 1, 32, 32), np.float32)}
    return cheap_layers(Placing(model, target, Settings.of(rules)), feed)


def weights_of(model: Model, names: list[str]) -> set[str]:
    """The weights of the layers that these names select."""
    chosen = Placing(model, find_backend("onnxruntime"), Settings.of([[n, "float"] for n in names]))
    found = (weight_of(node) for node in model.nodes() if id(node) in chosen.chosen)
    return {weight.name for weight in found if weight is not None}


def test_the_first_and_the_small_layers() -> None:
    """Products: 8 * 1024 (0.2 %), 64 * 72 * 1024, 4 * 64."""
    model = network()
    found = cheap(model, find_backend("onnxruntime"))
    assert weights_of(model, found) == {"a", "c"}


def test_a_network_of_small_layers_is_quantized_all_the_same() -> None:
    """150 layers of 16 products: the first 15 and not one more are a tenth of all."""
    eye = ", ".join(map(str, np.eye(4).ravel()))
    steps = "\n".join(f"x{i + 1} = MatMul(x{i}, w)" for i in range(150))
    model = parse(f"""g (float[1, 4] x0) => (float[1, 4] x150) <float[4, 4] w = {{{eye}}}> {{
        {steps}
    }}""")
    placing = Placing(model, find_backend("onnxruntime"), Settings())
    found = cheap_layers(placing, {"x0": np.ones((1, 4), np.float32)})
    assert len(found) == 15
    made = quantize(model, "onnxruntime", [{"x0": np.ones((1, 4), np.float32)}])
    assert made.proven


def test_a_first_layer_with_many_products_is_quantized() -> None:
    """8 * 1024 of (8 + 2 * 72) * 1024 products are 5 %."""
    model = network(wide=2)
    assert weights_of(model, cheap(model, find_backend("onnxruntime"))) == {"c"}


def test_a_small_layer_between_integers_is_quantized() -> None:
    """9 * 36 products for each channel of the depthwise one, and 2 * 36 elements to convert.

    That is 20 times the time of the products; they are 0.4 % of all.
    """
    for wide in (128, 256):
        shapes = {"a": (wide, wide, 3, 3), "b": (wide, 1, 3, 3), "c": (wide, wide, 3, 3)}
        model = parse_filled(
            f"""g (float[1, {wide}, 6, 6] x) => (float[1, {wide}, 6, 6] y) {{
                p = Conv<pads = [1, 1, 1, 1]>(x, a)
                q = Relu(p)
                r = Conv<pads = [1, 1, 1, 1], group = {wide}>(q, b)
                s = Relu(r)
                y = Conv<pads = [1, 1, 1, 1]>(s, c)
            }}""",
            **shapes,
        )
        feed = {"x": np.ones((1, wide, 6, 6), np.float32)}
        placing = Placing(model, find_backend("onnxruntime"), Settings())
        assert cheap_layers(placing, feed) == []


def test_a_layer_of_many_products_is_not_small() -> None:
    """4096 * 64 products: a 1 % of all that still gains from integers."""
    model = network(wide=64, head=4096)
    assert weights_of(model, cheap(model, find_backend("onnxruntime"))) == {"a"}


def test_rules_come_first() -> None:
    model = network()
    found = cheap(model, find_backend("onnxruntime"), [["Gemm", {"bits": 8}]])
    assert weights_of(model, found) == {"a"}


@pytest.mark.parametrize("target", ["tensorrt", "openvino", "ncnn"])
def test_other_targets_run_all_layers_in_integers(target: str) -> None:
    assert cheap(network(), find_backend(target)) == []


def test_so_does_the_variant_of_integer_operators() -> None:
    assert cheap(network(), chosen_backend("onnxruntime", "qoperator")) == []


def test_the_recipe_names_them() -> None:
    rng = np.random.default_rng(0)
    data = [{"x": rng.normal(size=(1, 1, 32, 32)).astype(np.float32)} for _ in range(2)]
    done = quantize(network(), "onnxruntime", data)
    assert {row.tensor for row in done.table if row.tensor in "abc"} == {"b"}
    again = quantize(network(), recipe=done.recipe, data=data)
    assert again.recipe == done.recipe


@pytest.mark.parametrize(("wide", "found"), [(64, {"a"}), (3, {"a"}), (1, set())])
def test_first_layers_to_try_are_a_small_share(wide: int, found: set[str]) -> None:
    """8 * 1024 of 8 * 1024 + wide * 72 * 1024 products and a few: 0.2, 3.6 and 10 %."""
    model = network(wide=wide)
    placing = Placing(model, find_backend("onnxruntime"))
    feed = {"x": np.ones((1, 1, 32, 32), np.float32)}
    assert weights_of(model, list(affordable_first_layers(placing, feed))) == found
    assert affordable_first_layers(Placing(model, find_backend("tensorrt")), feed) == ()
    ruled = Placing(model, find_backend("onnxruntime"), Settings.of([["Conv", {"bits": 8}]]))
    assert affordable_first_layers(ruled, feed) == ()
