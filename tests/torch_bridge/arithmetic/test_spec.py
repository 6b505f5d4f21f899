from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import OptionError
from onnxq.quant.qtypes import qtype
from onnxq.quant.scheme import QSpec

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic.spec import QuantizerSpec  # noqa: E402


def make(**fields: Any) -> QuantizerSpec:
    return QuantizerSpec(
        **{
            "qtype": qtype("int8"),
            "lo": -128,
            "hi": 127,
            "symmetric": True,
            "axis": None,
            **fields,
        }
    )


def test_a_spec_knows_its_granularity_and_levels() -> None:
    spec = make(lo=-127, axis=0)
    assert (spec.per_channel, spec.levels, spec.bits) == (True, 255, 8)
    assert str(spec) == "int8 -127..127, symmetric, per channel (axis 0)"
    assert not make().per_channel
    assert str(make(axis=1, block=32, power_of_two=True)) == (
        "int8 -128..127, symmetric, per block of 32 along axis 1, power-of-two scales"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lo": -129}, "not a range of codes of int8"),
        ({"hi": 128}, "not a range of codes of int8"),
        ({"lo": 3, "hi": 3}, "not a range of codes of int8"),
        ({"lo": 1}, "lacks the code 0"),
        ({"block": 4}, "need an axis"),
        ({"block": -1, "axis": 0}, "need an axis"),
        ({"qtype": qtype("int32")}, "int32 cannot be trained"),
    ],
)
def test_impossible_specs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make(**fields)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("int2", torch.int8),
        ("int4", torch.int8),
        ("uint4", torch.uint8),
        ("int8", torch.int8),
        ("uint8", torch.uint8),
        ("int16", torch.int16),
        ("uint16", torch.uint16),
    ],
)
def test_the_grid_stores_zero_points_in_a_type_onnx_quantizes_with(kind: str, stored: Any) -> None:
    of = qtype(kind)
    grid = make(qtype=of, lo=of.lo, hi=of.hi).grid
    assert (grid.lo, grid.hi, grid.stored_type()) == (of.lo, of.hi, stored)


def test_a_signed_type_with_codes_from_0_stays_signed() -> None:
    assert make(lo=0).grid.stored_type() == torch.int8


def test_of_takes_what_a_backend_trains_with() -> None:
    qspec = QSpec(("int8", "uint8"), symmetric=True, per_channel=True, lo=-127)
    assert QuantizerSpec.of(qspec, 1) == make(lo=-127, axis=1)
    assert QuantizerSpec.of(QSpec(("uint8",), power_of_two=True), 1) == make(
        qtype=qtype("uint8"), lo=0, hi=255, symmetric=False, power_of_two=True
    )
    assert QuantizerSpec.of(QSpec(("int8",), train_symmetric=True)).symmetric
