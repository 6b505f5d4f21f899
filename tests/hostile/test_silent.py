"""Nothing is changed, dropped or guessed without a word."""

from __future__ import annotations

import dataclasses
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import onnxq
from onnxq.dialects.function_inlining import functions_inlined
from onnxq.errors import BackendError, LoadError, QParamsError
from onnxq.graph import load
from onnxq.running.ort_tensors import TensorSpec
from onnxq.running.samples import samples
from tests.hostile import FOLDER
from tests.models.build import bit_equal, run

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
    assert "not written by onnxq" in model.upgrades[0]
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


def test_a_small_archive_in_fortran_order_does_not_take_3_gib(tmp_path: Path) -> None:
    """Its directory and its header agree on 5,350 samples, which deflate to next to nothing."""
    made = io.BytesIO()
    np.save(made, np.asfortranarray(np.zeros((2, 3, 224, 224), np.float32)))
    header = made.getvalue()[:128].replace(b"(2, 3", b"(5350, 3").replace(b"   \n", b"\n")
    claimed = len(header) + 5350 * 3 * 224 * 224 * 4
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", header + bytes(3_000_000))
    data = bytearray(archive.getvalue())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, claimed)
    (tmp_path / "big.npz").write_bytes(data)
    spec = TensorSpec("x", (1, 3, 224, 224), "tensor(float)", np.dtype(np.float32))
    tracemalloc.start()
    with pytest.raises(LoadError, match=rf"has {claimed - len(header)} bytes in Fortran order"):
        list(samples([spec], tmp_path / "big.npz"))
    other = dataclasses.replace(spec, shape=(1, 3, 32, 32))
    with pytest.raises(LoadError, match="has shape"):
        list(samples([other], tmp_path / "big.npz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
