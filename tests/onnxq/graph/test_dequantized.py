"""Stored codes stand for values, and are the codes of these values."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

from onnxq.arrays import pieces
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import QParamsError
from onnxq.graph import from_proto, load, save
from onnxq.graph.dequantized import DequantizedValues, codes_of, dequantized, stored_codes, unread
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.reading import canonical
from onnxq.storage import model_files
from onnxq.storage.tensors import StoredValues, to_external, to_tensor_proto
from tests.models.stored_models import external
from tests.models.zoo_build import Build

RNG = np.random.default_rng(0)
CODES = RNG.integers(-128, 128, (8, 12)).astype(np.int8)
INT8 = qtype("int8")
GRIDS = [
    QParams("w", INT8, 0.02, 0),
    QParams("w", INT8, RNG.uniform(0.01, 0.05, 12), RNG.integers(-9, 9, 12), axis=1),
    QParams("w", INT8, RNG.uniform(0.01, 0.05, (2, 12)), np.ones((2, 12)), axis=0, block=4),
]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE", 20)


@pytest.mark.parametrize("params", GRIDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_values_are_those_of_dequantize(params: QParams, dtype: Any) -> None:
    values = DequantizedValues(CODES, params, dtype)
    wanted = params.dequantize(CODES).astype(dtype)
    assert (values.shape, values.dtype, values.nbytes) == (wanted.shape, dtype, wanted.nbytes)
    assert np.array_equal(values.load(), wanted)
    assert all(np.array_equal(part, wanted[at]) for at, part in values.parts())
    constant = gs.Constant("w", values)
    assert to_tensor_proto(constant).raw_data == wanted.tobytes()
    bare, length, chunks = to_external(constant)
    assert b"".join(chunks()) == b"".join(chunks()) == wanted.tobytes()
    assert (length, list(bare.dims)) == (wanted.nbytes, list(wanted.shape))


def test_the_array_is_kept_only_while_it_is_used() -> None:
    values = DequantizedValues(CODES, GRIDS[0], np.float32)
    first = values.load()
    assert values.load() is first
    key = id(first)
    del first
    gc.collect()
    assert values._loaded() is None, key


@pytest.mark.parametrize("params", GRIDS)
def test_the_same_grid_gives_the_codes_themselves(params: QParams) -> None:
    values = DequantizedValues(CODES, params, np.float32)
    assert codes_of(values, params, np.int8) is CODES
    assert np.array_equal(params.quantize(values.load()), CODES)


@pytest.mark.parametrize("params", GRIDS)
@pytest.mark.parametrize(
    "change",
    [
        {"lo": -100, "hi": 100},
        {"qtype": qtype("uint8"), "zero_point": 128, "lo": 0, "hi": 255},
        {"qtype": qtype("int16"), "lo": -300, "hi": 300},
        {"scale": 0.5},
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_another_grid_gives_what_quantizing_gives(
    params: QParams, change: dict[str, Any], dtype: Any
) -> None:
    if "scale" in change:
        change = {"scale": np.full(params.scale.shape, 0.5)}
    other = params.with_(**change)
    values = DequantizedValues(CODES, params, dtype)
    found = codes_of(values, other, other.qtype.dtype)
    assert found.dtype == other.qtype.dtype
    assert np.array_equal(found, other.quantize(values.load()))


def test_values_that_overflow_are_quantized_as_they_are() -> None:
    params = QParams("w", INT8, 3e36, 0)
    values = DequantizedValues(CODES, params, np.float32)
    assert not np.isfinite(values.load()).all()
    found = codes_of(values, params, np.int8)
    assert np.array_equal(found, params.quantize(values.load()))
    assert not np.array_equal(found, CODES)


@pytest.mark.parametrize("step", [2.0**-149, 3e-45, 1e-40, 2.0**-126, 1e33])
def test_codes_are_found_again_at_the_ends_of_float32(step: float) -> None:
    every = np.arange(-128, 128, dtype=np.int8).reshape(2, 128)
    params = QParams("w", INT8, step, 0)
    values = DequantizedValues(every, params, np.float32)
    assert codes_of(values, params, np.int8) is every
    assert np.array_equal(params.quantize(values.load()), every)


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.int4, ml_dtypes.uint4])
def test_codes_in_a_file_are_read_block_by_block(
    dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = RNG.integers(0, 7, (5, 21)).astype(dtype)
    stored = stored_in(tmp_path, codes)
    wanted = codes.astype(np.int64)
    assert np.array_equal(stored.load().astype(np.int64), wanted)
    inline = StoredValues(to_tensor_proto(gs.Constant("w", codes)))
    for most in (1, 2, 5, 20):
        monkeypatch.setattr(pieces, "PIECE", most)
        for values in (stored, inline):
            found = list(values.parts())
            assert len(found) >= codes.size / most
            assert all(np.array_equal(part.astype(np.int64), wanted[at]) for at, part in found)
    constant = gs.Constant("w", stored)
    assert stored_codes(constant) is stored
    params = QParams("w", qtype(codes.dtype), 0.5, 0)
    values = dequantized(stored, params, np.float32)
    assert isinstance(values, DequantizedValues)
    assert np.array_equal(values.load(), params.dequantize(wanted))
    assert codes_of(values, params, codes.dtype) is stored


def stored_in(folder: Path, codes: Any) -> StoredValues:
    bare, _, chunks = to_external(gs.Constant("w", codes))
    (folder / "w.bin").write_bytes(b"".join(chunks()))
    return StoredValues(external(bare, location="w.bin"), folder)


def test_few_codes_are_computed_at_once() -> None:
    assert isinstance(dequantized(CODES[:1], GRIDS[0], np.float32), np.ndarray)
    constant = gs.Constant("w", CODES[:1])
    assert np.array_equal(stored_codes(constant), CODES[:1])
    assert np.array_equal(unread(constant), CODES[:1])


def test_scales_that_do_not_fit_are_told_before_values_are_read() -> None:
    params = QParams("w", INT8, [0.1, 0.2], 0, axis=0)
    with pytest.raises(QParamsError, match="2 scales for 8 channels"):
        dequantized(CODES, params, np.float32)


def test_values_saved_over_their_codes_are_read_from_the_new_file(tmp_path: Path) -> None:
    """The data file of the codes becomes that of the values, and the model stays whole."""
    b = Build(21)
    weight = b.op("DequantizeLinear", b.codes(CODES, TensorProto.INT8), b.init(np.float32(0.02)))
    proto = b.model(b.op("MatMul", b.qdq(b.input("x", [1, 8]), 0.1, 0, TensorProto.INT8), weight))
    path = tmp_path / "m.onnx"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "EXTERNAL_THRESHOLD", 16)
        save(from_proto(proto), path, external_data=True)
        model = canonical(load(path))[0]
        (node,) = [n for n in model.nodes(FAKE_QUANTIZE) if isinstance(n.inputs[0], gs.Constant)]
        values = node.inputs[0]._values
        assert isinstance(values, DequantizedValues)
        assert values.source is not None
        before = values.load().copy()
        save(model, path, external_data=True)
    gc.collect()
    assert values.settled is not None
    assert np.array_equal(values.load(), before)
    assert np.array_equal(codes_of(values, params_of(node), np.int8), CODES)


def test_codes_of_values_beyond_float32_are_refused() -> None:
    """onnxruntime makes the lowest code of an infinity, whatever its sign."""
    huge = QParams("w", INT8, 3e38, 0)
    with pytest.raises(QParamsError, match="'w': its codes represent values beyond float32"):
        dequantized(np.int8([[0, 1], [2, 0]]), huge, np.float32)
    held = dequantized(np.int8([[0, 1], [-1, 0]]), huge, np.float32)
    np.testing.assert_array_equal(held, np.float32([[0, 3e38], [-3e38, 0]]))
