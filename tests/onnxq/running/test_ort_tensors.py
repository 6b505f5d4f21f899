"""Specifications of inputs, and packed values."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from onnxq.running.ort_tensors import from_ort, spec_of, to_ort


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8e4m3fn", ml_dtypes.float8_e4m3fn),
        ("float8e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
        ("int4", ml_dtypes.int4),
        ("uint4", ml_dtypes.uint4),
        ("int2", ml_dtypes.int2),
        ("float16", np.float16),
        ("int64", np.int64),
        ("bool", np.bool_),
    ],
)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 3), (0, 2)])
def test_values_cross_and_come_back(kind: str, dtype: type, shape: tuple[int, ...]) -> None:
    spec = spec_of(SimpleNamespace(name="x", shape=list(shape), type=f"tensor({kind})"))
    assert spec.dtype == np.dtype(dtype)
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    back = from_ort(spec, to_ort(spec, array))
    assert back.dtype == array.dtype
    assert back.shape == shape
    np.testing.assert_array_equal(back.astype(float), array.astype(float))


def test_a_specification_reads_well() -> None:
    spec = spec_of(SimpleNamespace(name="x", shape=[1, "T", None], type="tensor(float)"))
    assert str(spec) == "float32[1, T, ?]"
    other = spec_of(SimpleNamespace(name="s", shape=[], type="seq(tensor(float))"))
    assert other.dtype is None
    assert str(other) == "seq(tensor(float))[]"
