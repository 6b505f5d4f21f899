"""Scale, zero point and range under the keys of any tool."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.affine_entry import AffineEntry
from tests.onnxq.formats.check import MODEL, row

PARTS = TensorParts(MODEL)
AFFINE = AffineEntry("step", "zero", "least", "most")
SCALES = st.floats(2.0**-100, 2.0**100, width=32)


def entry(**values: Any) -> Entry:
    return Entry(values, "here", "fix it")


@given(st.sampled_from(["int4", "int8", "uint8", "int16", "uint16"]), st.data())
def test_what_is_written_is_read_back(kind: str, data: st.DataObject) -> None:
    first = row("x", kind)
    assert first.lo is not None
    zeros = st.integers(first.lo, first.hi)
    whole = row("x", kind, data.draw(SCALES), data.draw(zeros))
    six = st.lists(SCALES, min_size=6, max_size=6), st.lists(zeros, min_size=6, max_size=6)
    layer = row("conv.w", kind, data.draw(six[0]), data.draw(six[1]), axis=0, role=Role.WEIGHT)
    for made in (whole, layer):
        bits, channels = side_rows.bits_of(made), made.axis is not None
        assert bits is not None
        values = AFFINE.values(made)
        signed = made.qtype.signed
        read = AFFINE.read(entry(**values), made.tensor, bits, signed, PARTS, channels=channels)
        assert read == made
        listed = {key: value if channels else [value] for key, value in values.items()}
        assert made == AFFINE.read(
            entry(**listed), made.tensor, bits, signed, PARTS, channels=channels, lists=True
        )


GOOD: dict[str, Any] = {"step": 0.5, "zero": 3, "least": -1.5, "most": 126.0}
LISTS = {key: [value, value] for key, value in GOOD.items()}


@pytest.mark.parametrize(
    ("values", "bits", "lists", "why"),
    [
        (GOOD, 1, False, "onnxq has no type for unsigned codes of 1 bits"),
        (GOOD, 10**9, False, "onnxq has no type for unsigned codes of 1000000000 bits"),
        (GOOD | {"step": [0.5]}, 8, False, "'step' is [0.5], not a finite number"),
        (GOOD | {"zero": 0.5}, 8, False, "'zero' is 0.5, not an integer"),
        (GOOD | {"least": -2.0}, 8, False, "'least' is -2, but scale and zero point give -1.5"),
        (GOOD | {"most": 127.0}, 8, False, "'most' is 127, but"),
        (GOOD, 8, True, "'step' is 0.5, not a list"),
        (
            LISTS | {"zero": [3]},
            8,
            True,
            "the lengths of 'step', 'zero'",
        ),
        (LISTS, 8, True, "2 scales, but it has no channels"),
    ],
)
def test_what_cannot_be_names_the_key(
    values: dict[str, Any], bits: int, lists: bool, why: str
) -> None:
    with pytest.raises(LoadError) as raised:
        AFFINE.read(entry(**values), "x", bits, False, PARTS, channels=False, lists=lists)
    assert str(raised.value).startswith(f"here: {why}")
