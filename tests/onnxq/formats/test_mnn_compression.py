"""MNN's compression parameters: known bytes, exactly back, strict on what is not read."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.formats import mnn_compression
from onnxq.formats.mnn_compression import FORMAT, read, write
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from tests.onnxq.formats.tables import ACTIVATIONS, SCALES, SHAPES, model


def row(name: str, scale: Any, zero: int = 0, **more: Any) -> QParams:
    kind = qtype(more.pop("qtype", "int8"))
    return QParams(name, kind, np.asarray(scale), np.asarray(zero), **more)


def weight(name: str, scale: Any, **more: Any) -> QParams:
    return row(name, scale, role=Role.WEIGHT, **more)


def field(number: int, wire: int, payload: bytes) -> bytes:
    size = bytes([len(payload)]) if wire == 2 else b""
    return bytes([number << 3 | wire]) + size + payload


def test_bytes_are_those_of_the_published_schema() -> None:
    """Encoded here by hand, field by field."""
    data = write(
        QParamTable([row("x", 0.5, 3), weight("mat.w", 0.25, lo=-127), row("h", 2.0)]), model()
    )
    mat = model().nodes("MatMul")[0]

    def scale(value: float) -> bytes:  # proto2 does not pack repeated numbers
        return bytes([3 << 3 | 5]) + struct.pack("<f", value)

    low = b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -128
    narrow = b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -127

    def activation(name: bytes, step: float, zero: int) -> bytes:
        ends = field(4, 0, bytes([zero])) + field(5, 0, low) + field(6, 0, b"\x7f")
        return field(1, 2, name) + field(2, 0, b"\x08") + scale(step) + ends

    w = field(1, 2, b"mat.w") + field(2, 0, b"\x08") + scale(0.25)
    w += field(4, 0, narrow) + field(5, 0, b"\x7f")
    name = (mat.name or "y").encode()
    first = field(1, 2, activation(b"h", 2.0, 0)) + field(2, 2, w)
    first += field(4, 0, b"\0") + field(6, 2, name)
    conv = (model().nodes("Conv")[0].name or "c").encode()
    second = field(1, 2, activation(b"x", 0.5, 3)) + field(4, 0, b"\0") + field(6, 2, conv)
    params = field(1, 0, b"\1") + field(4, 2, first) + field(4, 2, second)
    algorithm = field(1, 0, b"\0") + b"\x12" + _varint(len(params)) + params
    assert data == field(1, 2, b"0.0.0") + b"\x12" + _varint(len(algorithm)) + algorithm


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


@st.composite
def tables(draw: st.DrawFn) -> QParamTable:
    rows = [
        row(name, draw(SCALES), draw(st.integers(-128, 127)))
        for name in draw(st.lists(st.sampled_from(ACTIVATIONS), unique=True))
    ]
    for name in draw(st.lists(st.sampled_from([*SHAPES]), unique=True)):
        shape, axis, _ = SHAPES[name]
        count = draw(st.sampled_from([1, shape[axis]]))
        scales = draw(st.lists(SCALES, min_size=count, max_size=count))
        lo, kind = draw(st.sampled_from([(-128, "int8"), (-127, "int8"), (-8, "int4")]))
        more: dict[str, Any] = {"lo": lo, "qtype": kind}
        if count > 1:
            more["axis"] = axis
        rows.append(weight(name, scales, **more))
    return QParamTable(rows)


@given(tables())
def test_read_is_the_inverse_of_write(before: QParamTable) -> None:
    data = write(before, model())
    after = read(data, model())
    assert {r.tensor: r for r in after} == {r.tensor: r for r in before}
    assert write(after, model()) == data


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row("x", 1.0, qtype="uint8"), "uint8"),
        (row("x", 1.0, qtype="int16"), "int16"),
        (row("x", [1.0] * 4, axis=1), "per channel of an activation"),
        (weight("mat.w", 1.0, zero=1), "zero point"),
        (weight("mat.w", [1.0] * 4, axis=0), "along axis 0, its layer's channels along axis 1"),
    ],
)
def test_rows_that_are_refused(bad: QParams, why: str) -> None:
    with pytest.raises(SaveError, match=f"'{bad.tensor}': .*{why}"):
        write(QParamTable([bad]), model())


def test_an_output_is_not_given_to_a_layer_without_an_input() -> None:
    """MNN's converter ends with a memory fault on such a layer."""
    data = write(QParamTable([weight("conv.w", 1.0), row("c", 1.0)]), model())
    at = data.index(b"conv.w")
    assert b"c\x10" not in data[at : at + 40]
    assert {r.tensor for r in read(data, model())} == {"conv.w", "c"}


def test_every_cut_is_refused_or_lacks_a_row() -> None:
    before = QParamTable([row("x", 0.5), weight("conv.w", 0.25)])
    data = write(before, model())
    for end in range(len(data)):
        try:
            found = read(data[:end], model())
        except LoadError:
            continue
        assert len(found) < len(before)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"0.0.0", b"0.0.1", r"version '0\.0\.1'"),
        (b"conv.w", b"conv.v", "no tensor 'conv.v'"),
        (struct.pack("<f", 0.5), struct.pack("<f", float("nan")), "tensor 'x'"),
        (struct.pack("<f", 0.5), struct.pack("<f", -0.5), "tensor 'x'"),
    ],
)
def test_bad_values_are_named(old: bytes, new: bytes, why: str) -> None:
    data = write(QParamTable([row("x", 0.5), weight("conv.w", 0.25)]), model())
    assert old in data
    with pytest.raises(LoadError, match=why):
        read(data.replace(old, new), model())


def test_a_second_grid_for_a_tensor_is_refused() -> None:
    one, two = (write(QParamTable([row("x", s)]), model()) for s in (0.5, 0.25))
    with pytest.raises(LoadError, match="'x' a second grid"):
        read(one + two[7:], model())  # concatenated messages merge


def test_format_value() -> None:
    data = write(QParamTable([row("x", 0.5)]), model())
    assert FORMAT.recognises(data)
    assert FORMAT.accepts(data)
    for other in (b"", b"{}", b"\x0a\x050.0.0", b"c_param_0 1 2\n", data[:-3]):
        assert not FORMAT.recognises(other)
    assert FORMAT.binary


def test_fields_that_contradict_each_other_or_are_not_known_are_refused() -> None:
    data = write(QParamTable([row("x", 0.5), weight("conv.w", 0.25)]), model())
    message: Any = mnn_compression._pipeline()()
    message.ParseFromString(data)
    (entry,) = message.algo[0].quant_params.layer[0].input
    entry.bits = 4
    with pytest.raises(LoadError, match=r"'x' has codes -1\d\d..127 of 4 bits"):
        read(message.SerializeToString(), model())
    entry.bits = 8
    entry.MergeFromString(field(12, 0, b"\x05"))
    with pytest.raises(LoadError, match="field 12 is not read"):
        read(message.SerializeToString(), model())
