"""Nothing is changed, dropped or guessed without a word."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import onnxq
from onnxq.errors import BackendError, LoadError, QParamsError
from onnxq.function_inlining import functions_inlined
from onnxq.graph import load
from tests.build import bit_equal, run
from tests.hostile import FOLDER

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no ../shared/hostile beside the repository"
)


def test_a_body_for_our_function_is_not_replaced_by_ours() -> None:
    """Its FakeQuantize negates: what onnxruntime runs is what onnxq reads."""
    path = FOLDER / "foreign_onnxq_function.onnx"
    model = load(path)
    x = np.random.default_rng(0).normal(size=(1, 4, 32)).astype(np.float32)
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    assert bit_equal(run(model, x), expected)
    assert bit_equal(run(functions_inlined(model), x), expected)
    assert "is not onnxq's" in model.upgrades[0]
    with pytest.raises(BackendError, match="no quantizers that onnxq can read"):
        onnxq.convert(path, "onnxruntime")


def test_a_symmetric_grid_has_one_offset() -> None:
    model, side_file = FOLDER / "aimet_is_sym_float.onnx", FOLDER / "aimet_is_sym.json"
    with pytest.raises(LoadError, match=r"'weight_1.folded': 'is_sym' says .* to -1"):
        onnxq.convert(model, "qnn", encodings=side_file)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("meta_deep", "nested too deeply"),
        ("fuzz_01", "nested too deeply"),
        ("fuzz_21", "nested too deeply"),
        ("meta_digits", "line 1: a number of 5000 digits"),
    ],
)
def test_a_table_in_metadata_is_refused_with_its_file(name: str, why: str) -> None:
    with pytest.raises(QParamsError, match=rf"{name}.onnx: .*{why}"):
        load(FOLDER / f"{name}.onnx")
