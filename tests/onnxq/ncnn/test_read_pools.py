"""Reductions, norms and resizing, read back: only the forms that are written."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import LoadError
from onnxq.ncnn.program import Layer
from onnxq.ncnn.reader import model_of
from tests.models.build import run

INPUT = Layer("Input", "x", (), ("x",), {0: 4, 1: 3, 2: 2})
KEPT = {0: 3, 1: 0, 4: 1, 5: 1}


def test_a_reduction_keeps_its_axes() -> None:
    layer = Layer("Reduction", "r", ("x",), ("y",), {**KEPT, 3: (0, 2)})
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    (found,) = run(model_of([INPUT, layer]), x)
    np.testing.assert_allclose(found, x.mean((1, 3), keepdims=True), atol=1e-6)


def test_corners_of_interp() -> None:
    layer = Layer("Interp", "i", ("x",), ("y",), {0: 2, 1: 2.0, 2: 1.0, 3: 6, 4: 4, 6: 1})
    (node,) = model_of([INPUT, layer]).nodes("Resize")
    assert node.attrs["coordinate_transformation_mode"] == "align_corners"


def test_a_batch_norm_reads_its_weights_in_ncnns_order() -> None:
    weights = tuple(np.float32(w) for w in ([2, 2], [1, 0], [4, 1], [0, 5]))
    layer = Layer("BatchNorm", "n", ("x",), ("y",), {0: 2, 1: 0.0}, weights)
    (found,) = run(model_of([INPUT, layer]), np.full((1, 2, 3, 4), 3, np.float32))
    np.testing.assert_allclose(found[0, :, 0, 0], [2, 11], rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Layer("Reduction", "r", ("x",), ("y",), {**KEPT, 3: (3,)}), "do not fit"),
        (Layer("Reduction", "r", ("x",), ("y",), {**KEPT, 3: ()}), "do not fit"),
        (Layer("Reduction", "r", ("x",), ("y",), {**KEPT, 3: (0,), 0: 99}), "which are kept"),
        (Layer("Reduction", "r", ("x",), ("y",), {**KEPT, 3: (0,), 4: 0}), "which are kept"),
        (Layer("Interp", "i", ("x",), ("y",), {0: 1, 6: 1}), "nearest"),
        (Layer("InstanceNorm", "n", ("x",), ("y",), {0: 2, 2: 0}), "without gain"),
    ],
)
def test_refusals(layer: Layer, why: str) -> None:
    with pytest.raises(LoadError, match=rf"'{layer.name}' \({layer.type}\).*{why}"):
        model_of([INPUT, layer])
