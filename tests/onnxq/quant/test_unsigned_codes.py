"""int8 as uint8: the same values for all inputs."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.quant.unsigned_codes import unsigned


@pytest.mark.parametrize(("zero", "lo", "hi"), [(0, -128, 127), (-128, -128, 127), (5, -64, 63)])
def test_values_stay(zero: int, lo: int, hi: int) -> None:
    params = QParams("x", qtype("int8"), np.float32(0.1), np.array(zero), lo=lo, hi=hi)
    made = unsigned(params)
    assert made is not None
    assert (str(made.qtype), made.lo, made.hi) == ("uint8", lo + 128, hi + 128)
    x = np.linspace(-40, 40, 1001, dtype=np.float32)
    np.testing.assert_array_equal(made.fake(x), params.fake(x))


def test_fewer_bits_stay_few() -> None:
    params = QParams("x", qtype("int4"), np.float32(0.1), np.array(0))
    made = unsigned(params)
    assert made is not None
    assert (made.lo, made.hi, int(made.zero_point)) == (120, 135, 128)


@pytest.mark.parametrize("kind", ["uint8", "int16", "float8e4m3fn"])
def test_other_types_have_no_such_form(kind: str) -> None:
    assert unsigned(QParams("x", qtype(kind), np.float32(0.1), np.array(0))) is None
