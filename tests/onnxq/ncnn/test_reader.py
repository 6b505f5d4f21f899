"""From ncnn's files to a graph: only what the writer makes, everything else by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import LoadError
from onnxq.ncnn import writer
from onnxq.ncnn.program import Layer
from onnxq.ncnn.reader import model_of, read
from tests.models.build import quantize, weight
from tests.onnxq.ncnn.cases import graph

INPUT = Layer("Input", "x", (), ("x",), {0: 4})


def int8_layers() -> list[Layer]:
    model = graph("Gemm")
    return writer.layers_of(quantize(weight(model, "w", lo=-127, scale=0.02), "x", lo=-127))


def test_quantizers_come_back_within_one_ulp() -> None:
    model = model_of(int8_layers())
    found = [params_of(n) for n in model.nodes(FAKE_QUANTIZE)]
    assert {(p.lo, p.hi) for p in found} == {(-127, 127)}
    steps = sorted({float(s) for p in found for s in p.scale.reshape(-1)})
    np.testing.assert_allclose(steps, [0.02, 0.1], rtol=2**-23)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Layer("Einsum", "s", ("x",), ("y",)), "not read"),
        (Layer("Quantize", "q", ("x",), ("y",), {0: 1}, (np.ones(1, np.float32),)), ""),
        (Layer("Cast", "c", ("x",), ("y",), {0: 3, 1: 1}), "codes"),
        (Layer("BinaryOp", "b", ("x",), ("y",), {0: 99, 1: 1, 2: 1.0}), "operation 99"),
        (Layer("Permute", "p", ("x",), ("y",), {0: 3}), "order 3"),
        (Layer("Pooling", "p", ("x",), ("y",), {0: 0, 1: 2, 11: 2}), "round down"),
        (Layer("Interp", "i", ("x",), ("y",), {0: 3}), "nearest"),
        (Layer("Softmax", "s", ("x",), ("y",), {0: 0}), "only axes"),
        (Layer("Reshape", "r", ("x",), ("y",), {0: -1}), "is not a shape"),
        (Layer("ReLU", "r", ("x",), ("y",), {9: 0.1}), "parameter 9 is not read"),
        (Layer("ReLU", "r", (), ("y",)), "reads 0 blobs"),
        (Layer("ReLU", "r", ("x",), ("y", "z")), "makes 2 blobs"),
        (Layer("BinaryOp", "b", ("x",), ("y",), {0: 0}), "parameter 1 says otherwise"),
        (Layer("LayerNorm", "l", ("x",), ("y",), {0: 4, 2: 0}), "without gain"),
        (Layer("InnerProduct", "d", ("x",), ("y",), {0: 0, 2: 4}, (np.ones(4),)), "0 outputs"),
    ],
)
def test_layers_that_are_not_read(layer: Layer, why: str) -> None:
    if layer.type == "Quantize":
        off = Layer("BinaryOp", "m", ("z",), ("y",), {0: 2, 1: 1, 2: 0.5})
        cast = Layer("Cast", "c", ("y0",), ("z",), {0: 3, 1: 1})
        with pytest.raises(LoadError, match=r"'m'.*step"):
            model_of([INPUT, replace(layer, tops=("y0",)), cast, off])
        return
    with pytest.raises(LoadError, match=rf"'{layer.name}' \({layer.type}\).*{why}"):
        model_of([INPUT, layer])


def test_int8_weights_without_scales_are_refused() -> None:
    layers = int8_layers()
    dense = layers[-1]
    bare = {k: v for k, v in dense.params.items() if k != 8}
    with pytest.raises(LoadError, match="no scales"):
        model_of([*layers[:-1], replace(dense, params=bare, weights=dense.weights[:2])])


def test_codes_that_ncnn_does_not_have_are_refused() -> None:
    layers = int8_layers()
    dense = layers[-1]
    low = np.full_like(dense.weights[0], -128)
    with pytest.raises(LoadError, match="codes below -127"):
        model_of([*layers[:-1], replace(dense, weights=(low, *dense.weights[1:]))])
    plain = dense.weights[0].astype(np.float32)
    with pytest.raises(LoadError, match="has scales, but its weights are not int8"):
        model_of([*layers[:-1], replace(dense, weights=(plain, *dense.weights[1:]))])


@pytest.mark.parametrize("sizes", [{3: 12, 4: 6}, {3: 6, 4: 12}, {3: 0, 4: 0}, {}])
def test_factors_and_sizes_of_interp_agree(sizes: dict[int, int]) -> None:
    image = Layer("Input", "x", (), ("x",), {0: 3, 1: 6, 2: 4})
    layer = Layer("Interp", "i", ("x",), ("y",), {0: 1, 1: 2.0, 2: 4.0})
    whole = replace(layer, params={**layer.params, 3: 12, 4: 12})
    assert model_of([image, whole]).nodes("Resize")
    with pytest.raises(LoadError, match=r"'i' \(Interp\): its factors make of"):
        model_of([image, replace(layer, params={**layer.params, **sizes})])


def test_a_scale_that_is_not_positive_is_refused() -> None:
    layers = int8_layers()
    dense = layers[-1]
    bad = (*dense.weights[:-1], np.zeros(1, np.float32))
    with pytest.raises(LoadError, match="not positive"):
        model_of([*layers[:-1], replace(dense, weights=bad)])


def test_both_files_are_needed() -> None:
    with pytest.raises(LoadError, match="is text"):
        read({"param": b"", "bin": b""})
