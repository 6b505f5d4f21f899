"""What a target accepts, and the words in which it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import OptionError
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.quant.scheme import QSpec, Scheme

STRICT = QSpec(("int8",), symmetric=True)
WIDE = QSpec(("uint8", "int8", "int4"), per_channel=True, blocks=True)


EXEMPT = QSpec(("int8",), symmetric=True, per_channel=True, asymmetric=("uint8",))


def params(kind: str = "int8", scale: Any = 0.5, zero_point: Any = 0, **more: Any) -> QParams:
    return QParams("t", qtype(kind), np.asarray(scale), np.asarray(zero_point), **more)


CHANNELS: dict[str, Any] = {"scale": [0.5, 0.25], "zero_point": [0, 0], "axis": 0}
BLOCKS: dict[str, Any] = {"scale": np.ones((2, 3)), "zero_point": 0, "axis": 1, "block": 4}


@pytest.mark.parametrize(
    ("spec", "row"),
    [
        (STRICT, params()),
        (STRICT, params(lo=-127)),
        (WIDE, params("uint8", zero_point=7)),
        (WIDE, params("int4", zero_point=-3)),
        (WIDE, params(**CHANNELS)),
        (WIDE, params(**BLOCKS)),
        (QSpec(("int8",), blocks=True), params(**BLOCKS)),
        (QSpec(("uint8",), symmetric=True), params("uint8")),
        (QSpec(("int8",), full_range=True), params()),
        (EXEMPT, params("uint8", zero_point=127)),
        (EXEMPT, params(**CHANNELS)),
    ],
)
def test_accepted(spec: QSpec, row: QParams) -> None:
    assert list(spec.violations(row)) == []


@pytest.mark.parametrize(
    ("spec", "row", "words"),
    [
        (STRICT, params("uint8"), ["type uint8 (accepted: int8)"]),
        (WIDE, params("int16"), ["type int16 (accepted: uint8, int8, int4)"]),
        (STRICT, params(zero_point=3), ["zero point 3 (must be 0)"]),
        (EXEMPT, params(zero_point=3), ["zero point 3 (must be 0)"]),
        (EXEMPT, params("uint8", **CHANNELS), ["type uint8 (accepted: int8)"]),
        (STRICT, params(**CHANNELS), ["one scale per channel (must be one per tensor)"]),
        (STRICT, params(**BLOCKS), ["one scale per block (not accepted)"]),
        (
            QSpec(("int8",), per_channel=True),
            params(**BLOCKS),
            ["one scale per block (not accepted)"],
        ),
        (
            QSpec(("int8",), blocks=True),
            params(**CHANNELS),
            ["one scale per channel (must be one per tensor)"],
        ),
        (
            QSpec(("int8",), full_range=True, lo=-127),
            params(),
            ["range -128..127 (must be -127..127)"],
        ),
        (
            QSpec(("int8",), full_range=True),
            params(lo=-127),
            ["range -127..127 (must be -128..127)"],
        ),
        (
            QSpec(("int8",), symmetric=True, per_channel=True),
            params(scale=[1, 1, 1], zero_point=[0, -5, 2], axis=0),
            ["zero point -5 (must be 0)"],
        ),
        (
            QSpec(("int8",), symmetric=True, full_range=True),
            params("uint8", scale=[1, 1], zero_point=[4, 0], axis=0, hi=200),
            [
                "type uint8 (accepted: int8)",
                "zero point 4 (must be 0)",
                "one scale per channel (must be one per tensor)",
                "range 0..200 (must be 0..255)",
            ],
        ),
    ],
)
def test_refused_with_every_reason(spec: QSpec, row: QParams, words: list[str]) -> None:
    assert list(spec.violations(row)) == words


def test_each_role_has_its_own_rules() -> None:
    scheme = Scheme(weight=WIDE, activation=STRICT, bias=QSpec(("int32",), symmetric=True))
    row = params("uint8", zero_point=1)
    assert scheme.violations(row.with_(role=Role.WEIGHT)) == []
    assert len(scheme.violations(row.with_(role=Role.ACTIVATION))) == 2
    assert scheme.violations(params("int32", role=Role.BIAS)) == []
    assert scheme.violations(params("int8", role=Role.BIAS)) == ["type int8 (accepted: int32)"]


def test_without_rules_for_biases_they_stay_float() -> None:
    scheme = Scheme(weight=WIDE, activation=STRICT)
    assert scheme.violations(params("int32", role=Role.BIAS)) == [
        "a quantized bias (must stay float)"
    ]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (STRICT, "int8, symmetric, per tensor"),
        (WIDE, "uint8/int8/int4, any zero point, per tensor or channel"),
    ],
)
def test_as_text(spec: QSpec, text: str) -> None:
    assert str(spec) == text


# -- what training is told ----------------------------------------------------------------------


def test_training_uses_the_preferred_type_and_its_whole_range_unless_told() -> None:
    assert (WIDE.qtype.name, WIDE.range, WIDE.bits) == ("uint8", (0, 255), 8)
    narrow = QSpec(("int8",), lo=-127)
    assert (narrow.range, narrow.bits) == ((-127, 127), 8)
    assert QSpec(("int8",), lo=-64, hi=63).bits == 7


@pytest.mark.parametrize("ends", [{"lo": -129}, {"hi": 128}, {"lo": 5, "hi": 5}])
def test_a_range_beyond_the_type_is_refused(ends: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="does not fit int8"):
        QSpec(("int8",), **ends)


@pytest.mark.parametrize(
    ("spec", "bits", "kind", "ends"),
    [
        (QSpec(("int8",)), 4, "int4", (-8, 7)),
        (QSpec(("int8",), lo=-127), 4, "int4", (-7, 7)),
        (QSpec(("int8",), lo=-127), 3, "int4", (-3, 3)),
        (QSpec(("uint8",)), 2, "uint2", (0, 3)),
        (QSpec(("uint8", "uint16")), 16, "uint16", (0, 65535)),
        (QSpec(("int8",)), 5, "int8", (-16, 15)),
        (QSpec(("int4", "int8")), 8, "int8", (-128, 127)),
        (QSpec(("int8",), lo=-64, hi=63), 8, "int8", (-128, 127)),
    ],
)
def test_other_bits(spec: QSpec, bits: int, kind: str, ends: tuple[int, int]) -> None:
    changed = spec.with_bits(bits)
    assert (changed.qtype.name, changed.range, changed.bits) == (kind, ends, bits)
    assert set(spec.types) <= set(changed.types)


@pytest.mark.parametrize("bits", [1, 17])
def test_bits_that_no_type_holds(bits: int) -> None:
    with pytest.raises(OptionError, match=f"{bits} bits cannot be trained"):
        STRICT.with_bits(bits)


def test_unsigned_has_as_many_codes() -> None:
    assert STRICT.unsigned().range == (0, 255)
    assert QSpec(("int8",), lo=-127).unsigned().range == (0, 254)
    assert QSpec(("int4", "uint4")).unsigned().types == ("uint4", "int4")
    assert WIDE.unsigned() is WIDE


def test_training_may_be_stricter_than_what_is_accepted() -> None:
    spec = QSpec(("int8",), train_symmetric=True)
    assert spec.trained().symmetric
    assert list(spec.violations(params(zero_point=3))) == []
    assert STRICT.trained() is STRICT


def test_power_of_two_scales() -> None:
    spec = QSpec(("int8",), power_of_two=True)
    assert list(spec.violations(params(scale=0.25))) == []
    assert list(spec.violations(params(scale=2.0**-140))) == []
    assert list(spec.violations(params(scale=0.3))) == ["scale 0.3 (must be a power of two)"]
    assert str(spec).endswith("power-of-two scales")


def test_a_range_that_must_be_used_whole_is_told() -> None:
    told = str(QSpec(("int8",), symmetric=True, full_range=True, lo=-127))
    assert told == "int8, codes -127..127, symmetric, per tensor"
    assert "codes" not in str(QSpec(("int8",), full_range=True))


def test_types_with_a_zero_point_are_rules_of_their_own() -> None:
    assert STRICT.ways() == (STRICT,)
    first, second = EXEMPT.ways()
    assert first == QSpec(("int8",), symmetric=True, per_channel=True)
    assert second == QSpec(("uint8",))
    assert str(EXEMPT).endswith("uint8 per tensor with any zero point")


@pytest.mark.parametrize("types", ["int8", (), ["int8"]])
def test_types_are_a_tuple(types: Any) -> None:
    with pytest.raises(OptionError, match="QSpec: types=") as caught:
        QSpec(types)
    assert caught.value.fix == 'give a tuple: ("int8",)'
