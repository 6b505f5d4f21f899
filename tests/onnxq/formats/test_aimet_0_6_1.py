"""Encodings 0.6.1: one list of entries per tensor, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from onnxq.errors import LoadError, SaveError
from onnxq.formats.aimet_0_6_1 import FORMAT, float_tensors, read, write
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from tests.onnxq.formats.check import check_exact_inverse
from tests.onnxq.formats.tables import SHAPES, model, one_zero_point

MODEL = model()
ENTRY = {
    "bitwidth": 8,
    "dtype": "int",
    "is_symmetric": "False",
    "min": -1.5,
    "max": 11.25,
    "scale": 0.05,
    "offset": -30.0,
}


def document(**groups: Any) -> str:
    return json.dumps({"version": "0.6.1", "activation_encodings": {}, **groups})


def one(**changes: Any) -> str:
    entry = {k: v for k, v in (ENTRY | changes).items() if v is not ...}
    return document(activation_encodings={"x": [entry]})


@given(one_zero_point())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_exact_inverse(FORMAT, table)


def test_an_activation() -> None:
    (row,) = read(one(), MODEL)
    assert row == QParams("x", qtype("uint8"), np.asarray(0.05), np.asarray(30))


def test_a_symmetric_weight_has_offset_minus_128() -> None:
    entry = ENTRY | {"is_symmetric": "True", "offset": -128, "min": -6.4, "max": 6.35}
    (row,) = read(document(param_encodings={"conv.w": [entry] * 6}), MODEL)
    assert (row.qtype.name, row.axis, row.role) == ("int8", 0, Role.WEIGHT)
    assert not row.zero_point.any()
    written = json.loads(write(QParamTable([row]), MODEL))["param_encodings"]["conv.w"][0]
    assert (written["offset"], written["is_symmetric"]) == (-128, "True")
    assert written["min"] == -128 * float(np.float32(0.05))


@pytest.mark.parametrize("name", SHAPES)
def test_the_axis_comes_from_the_layer(name: str) -> None:
    shape, channel, _ = SHAPES[name]
    entries = [ENTRY] * shape[channel]
    (row,) = read(document(param_encodings={name: entries}), MODEL)
    assert row.axis == channel


def test_older_tools_leave_the_lowest_code_out() -> None:
    (row,) = read(one(is_symmetric="True", offset=-127, min=-6.35, max=6.35), MODEL)
    assert (row.qtype.name, row.lo, row.hi, int(row.zero_point)) == ("int8", -127, 127, 0)
    with pytest.raises(SaveError, match=r"'x': codes -127\.\.127"):
        write(QParamTable([row]), MODEL)
    (other,) = read(one(is_symmetric="True", offset=-127, min=-6.35, max=6.4), MODEL)
    assert (other.lo, int(other.zero_point)) == (-128, -1)


def test_float_tensors_have_no_row() -> None:
    text = document(activation_encodings={"x": [{"bitwidth": 16, "dtype": "float"}], "c": [ENTRY]})
    assert [row.tensor for row in read(text, MODEL)] == ["c"]
    assert float_tensors(text) == {"x"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scale": ...}, "key 'scale' is missing"),
        ({"scael": 1}, "unknown key 'scael'; did you mean 'scale'"),
        ({"scale": "0.05"}, "'scale' is \"0.05\", not a finite number"),
        ({"scale": float("nan")}, "'scale' is NaN"),
        ({"scale": 0, "min": ..., "max": ...}, "not a positive finite number"),
        ({"offset": -30.5}, "not an integer"),
        ({"offset": 30, "min": ..., "max": ...}, "offset 30 is outside -255..0"),
        ({"is_symmetric": False}, 'not "True" or "False"'),
        ({"dtype": "INT"}, 'not "int"'),
        ({"bitwidth": 64}, "64 bits"),
        ({"bitwidth": True}, "'bitwidth' is true"),
        ({"min": 0.0}, "'min' is 0, but scale and offset give -1.5"),
        ({"max": 12.0}, "'max' is 12"),
    ],
)
def test_a_bad_entry_names_tensor_and_key(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(LoadError) as caught:
        read(one(**changes), MODEL)
    assert "'activation_encodings', tensor 'x'" in caught.value.what
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ([], "not an object"),
        ({"x": ENTRY}, "not a list of entries"),
        ({"x": []}, "not a list of entries"),
        ({"x": [3]}, "entry 0 is 3, not an object"),
        ({"x": [ENTRY, ENTRY]}, "along an unknown axis"),
        ({"conv.w": [ENTRY, ENTRY | {"bitwidth": 4}]}, "entry 1: 'bitwidth' differs"),
    ],
)
def test_a_bad_group(group: Any, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(document(activation_encodings=group), MODEL)


def test_a_tensor_in_both_groups() -> None:
    text = document(activation_encodings={"x": [ENTRY]}, param_encodings={"x": [ENTRY]})
    with pytest.raises(LoadError, match=r"'param_encodings', tensor 'x': .* already has"):
        read(text, MODEL)


@pytest.mark.parametrize(
    ("tensor", "more", "why"),
    [
        ("x", {"axis": 1}, "one scale per channel of an activation"),
        ("gemm.w", {"axis": 0}, "run along axis 0, its layer's channels along axis 1"),
        ("conv.w", {"axis": 1, "block": 1}, "one scale per block"),
    ],
)
def test_what_a_reader_could_not_know_is_refused(
    tensor: str, more: dict[str, Any], why: str
) -> None:
    shape = SHAPES[tensor][0] if "block" in more else (SHAPES.get(tensor, ((4, 4),))[0][0],)
    role = Role.WEIGHT if tensor in SHAPES else Role.ACTIVATION
    row = QParams(tensor, qtype("int8"), np.ones(shape), np.zeros(()), role=role, **more)
    with pytest.raises(SaveError, match=why):
        write(QParamTable([row]), MODEL)


def test_a_negative_axis_is_the_same_axis() -> None:
    row = QParams(
        "gemm.w", qtype("int8"), np.ones(5), np.zeros(()), axis=-1, role=Role.WEIGHT
    )  # fmt: skip
    (again,) = read(write(QParamTable([row]), MODEL), MODEL)
    assert again.axis == 1
    assert np.array_equal(again.scale, row.scale)
