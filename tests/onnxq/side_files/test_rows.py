"""Widths, shifts and refusals that all side files share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError, SaveError
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files import rows as side_rows
from tests.onnxq.formats.tables import model

ENTRY = Entry({}, "here", "fix it")


@pytest.mark.parametrize(
    ("kind", "lo", "hi", "bits"),
    [
        *(("int8", -128, 127, 8), ("uint8", 0, 255, 8), ("int16", -32768, 32767, 16)),
        *(("int8", -64, 63, 7), ("uint8", 0, 127, 7), ("int4", -8, 7, 4), ("uint2", 0, 3, 2)),
        *(("int8", -127, 127, None), ("uint8", 1, 255, None), ("int4", -7, 7, None)),
        *(("int8", 0, 127, None), ("int32", -(2**31), 2**31 - 1, 32)),
    ],
)
def test_bits(kind: str, lo: int, hi: int, bits: int | None) -> None:
    row = QParams("x", qtype(kind), np.ones(()), np.asarray(max(lo, 0)), lo=lo, hi=hi)
    assert side_rows.bits_of(row) == bits
    if bits is not None:
        assert side_rows.code_range(bits, row.qtype.signed) == (lo, hi)


@pytest.mark.parametrize(
    ("bits", "signed", "name"),
    [
        *((8, True, "int8"), (8, False, "uint8"), (5, True, "int8"), (3, False, "uint4")),
        *((12, False, "uint16"), (32, True, "int32"), (32, False, None), (17, True, None)),
        *((1, False, None), (0, True, None), (-3, True, None), (64, True, None)),
    ],
)
def test_container(bits: int, signed: bool, name: str | None) -> None:
    if name is not None:
        assert side_rows.container(ENTRY, bits, signed).name == name
        return
    with pytest.raises(LoadError, match=f"here: .* codes of {bits} bits"):
        side_rows.container(ENTRY, bits, signed)


def test_a_value_that_cannot_be_names_its_place() -> None:
    with pytest.raises(LoadError, match=r"here: .*scale"):
        side_rows.make_row(ENTRY, "x", 8, True, -1.0, 0, Role.ACTIVATION)
    with pytest.raises(LoadError, match=r"here: .*unsigned codes of 32 bits"):
        side_rows.make_row(ENTRY, "x", 32, False, 1.0, 0, Role.ACTIVATION)


def row(name: str = "x", **more: object) -> QParams:
    return QParams(name, qtype("int8"), np.ones(()), np.zeros(()), **more)  # type: ignore[arg-type]


def test_refusals_are_told_together_with_their_reasons() -> None:
    rows = [row("a"), row("b"), row("b"), row("c", readers=(Reader("n", 0),)), row("d")]
    with pytest.raises(SaveError) as caught:
        side_rows.writable(rows, "leaves", lambda r: "too old" if r.tensor == "d" else None, "wait")
    assert caught.value.what.startswith("3 of the tensors cannot be written as leaves:")
    for text in ("'b': it has 2 quantizers", "'c': only some of its consumers", "'d': too old"):
        assert text in caught.value.what
    assert "'a'" not in caught.value.what
    assert caught.value.fix == "wait"
    assert side_rows.writable([row("a")], "leaves", lambda r: None, "") == [row("a")]


@given(
    st.sampled_from(["int8", "uint8", "int4", "int16"]),
    st.integers(-8, 7),
    st.lists(st.floats(-100, 100, width=32), min_size=1),
)
def test_the_unsigned_row_is_the_same_grid(kind: str, zero: int, values: list[float]) -> None:
    signed = QParams(
        "x", qtype(kind), np.asarray(0.3), np.asarray(abs(zero) if kind[0] == "u" else zero)
    )
    shifted = side_rows.unsigned(signed)
    assert not shifted.qtype.signed
    assert shifted.lo == 0
    x = np.array(values, np.float32)
    assert np.array_equal(shifted.fake(x), signed.fake(x))


def test_an_end_may_be_rounded_and_no_more() -> None:
    side_rows.check_end(ENTRY, "max", 12.7001, 0.1, 127)
    with pytest.raises(LoadError, match=r"here: 'max' is 12\.8, but .* give 12\.7"):
        side_rows.check_end(ENTRY, "max", 12.8, 0.1, 127)


def test_the_graph_tells_the_role() -> None:
    parts = TensorParts(model())
    assert side_rows.with_role(row("conv.w"), parts).role is Role.WEIGHT
    assert side_rows.with_role(row("c", role=Role.WEIGHT), parts).role is Role.ACTIVATION


def test_reasons() -> None:
    assert side_rows.partial_codes(row()) is None
    assert "-127..127" in (side_rows.partial_codes(row(lo=-127)) or "")
    fp8 = QParams("h", qtype("float8e4m3fn"), np.ones(()), np.zeros(()))
    assert "float8" in (side_rows.partial_codes(fp8) or "")
    assert side_rows.per_channel(row()) is None
    wide = QParams("w", qtype("int8"), np.ones(3), np.zeros(()), axis=0)
    assert "per channel" in (side_rows.per_channel(wide) or "")
