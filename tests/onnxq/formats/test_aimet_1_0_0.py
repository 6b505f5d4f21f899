"""Encodings 1.0.0: lists of entries, channels and blocks without an axis, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from onnxq.errors import LoadError, SaveError
from onnxq.formats.aimet_1_0_0 import FORMAT, float_tensors, read, write
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from tests.onnxq.formats.check import check_exact_inverse
from tests.onnxq.formats.tables import SHAPES, model, one_zero_point

MODEL = model()
ENTRY = {
    "name": "x",
    "dtype": "INT",
    "enc_type": "PER_TENSOR",
    "bw": 8,
    "is_sym": False,
    "scale": [0.05],
    "offset": [-30.0],
}


def document(*entries: Any, group: str = "activation_encodings") -> str:
    return json.dumps({"version": "1.0.0", "quantizer_args": {}, group: list(entries)})


def changed(**changes: Any) -> dict[str, Any]:
    return {k: v for k, v in (ENTRY | changes).items() if v is not ...}


@given(one_zero_point(blocks=True))
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_exact_inverse(FORMAT, table)


def test_an_activation() -> None:
    (row,) = read(document(ENTRY), MODEL)
    assert row == QParams("x", qtype("uint8"), np.asarray(0.05), np.asarray(30))


@pytest.mark.parametrize("name", SHAPES)
def test_the_axis_comes_from_the_layer(name: str) -> None:
    shape, channel, _ = SHAPES[name]
    count = shape[channel]
    entry = changed(
        name=name, enc_type="PER_CHANNEL", is_sym=True, bw=4, scale=[1.0] * count,
        offset=[-8] * count,
    )  # fmt: skip
    (row,) = read(document(entry, group="param_encodings"), MODEL)
    assert (row.axis, row.qtype.name, row.role) == (channel, "int4", Role.WEIGHT)
    assert not row.zero_point.any()


def test_blocks_are_listed_channel_by_channel() -> None:
    """mat.w is (K, N) = (4, 6): two blocks of each of the six columns."""
    scale = np.arange(1, 13, dtype=np.float32).reshape(2, 6)
    more: dict[str, Any] = {"axis": 0, "block": 2, "role": Role.WEIGHT}
    row = QParams("mat.w", qtype("int4"), scale, np.zeros((2, 6), int), **more)
    (entry,) = json.loads(write(QParamTable([row]), MODEL))["param_encodings"]
    assert (entry["enc_type"], entry["block_size"]) == ("PER_BLOCK", 2)
    assert entry["scale"] == [1, 7, 2, 8, 3, 9, 4, 10, 5, 11, 6, 12]


def test_blocks_that_differ_inside_a_kernel_are_refused() -> None:
    scale = np.ones((6, 2, 3, 3), np.float32)
    scale[0, 0, 1, 1] = 2
    more: dict[str, Any] = {"axis": 1, "block": 2, "role": Role.WEIGHT}
    row = QParams("conv.w", qtype("int8"), scale, np.zeros(()), **more)
    with pytest.raises(SaveError, match="differs between positions"):
        write(QParamTable([row]), MODEL)
    swapped = QParams("gemm.w", qtype("int8"), np.ones((8, 1)), np.zeros(()), axis=1, block=5)
    with pytest.raises(SaveError, match="its blocks lie along axis 1"):
        write(QParamTable([swapped.with_(role=Role.WEIGHT)]), MODEL)


def test_float_tensors_have_no_row() -> None:
    entry = {"name": "c", "dtype": "FLOAT", "enc_type": "PER_TENSOR", "bw": 16}
    text = document(ENTRY, entry)
    assert [row.tensor for row in read(text, MODEL)] == ["x"]
    assert float_tensors(text) == {"c"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"offset": ...}, "key 'offset' is missing"),
        ({"is_symmetric": True}, "unknown key 'is_symmetric'; did you mean 'is_sym'"),
        ({"scale": 0.05}, "'scale' is 0.05, not a list of numbers"),
        ({"scale": []}, "not a list of numbers"),
        ({"scale": [None]}, "'scale[0]' is null"),
        ({"scale": [-1.0]}, "not a positive finite number"),
        ({"offset": [0.5]}, "'offset[0]' is 0.5, not an integer"),
        ({"offset": [-300]}, "offset -300 is outside -255..0"),
        ({"offset": [0, 0]}, "1 scales, but 2 offsets"),
        ({"is_sym": "False"}, "'is_sym' is \"False\", not true or false"),
        ({"is_sym": 0}, "'is_sym' is 0"),
        ({"dtype": "int"}, 'not "INT"'),
        ({"bw": 40}, "40 bits"),
        ({"enc_type": "PER_AXIS"}, "enc_type"),
        ({"enc_type": "LPBQ"}, "LPBQ"),
        ({"scale": [1, 1], "offset": [0, 0]}, "2 scales, but enc_type PER_TENSOR"),
        ({"block_size": 2}, "'block_size' does not go with enc_type PER_TENSOR"),
        ({"enc_type": "PER_BLOCK"}, "'block_size' is missing for enc_type PER_BLOCK"),
        ({"zero_point_shift": [0.5]}, "fractional zero point"),
    ],
)
def test_a_bad_entry_names_tensor_and_key(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(LoadError) as caught:
        read(document(changed(**changes)), MODEL)
    assert "'activation_encodings', tensor 'x'" in caught.value.what
    assert why in caught.value.what


def test_a_zero_point_shift_of_zero_is_none() -> None:
    assert len(read(document(changed(zero_point_shift=[0.0])), MODEL)) == 1


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (3, "'activation_encodings', entry 0 is 3, not an object"),
        (changed(name=...), "'activation_encodings', entry 0: key 'name' is missing"),
        (changed(name=""), "'name' is \"\", not a non-empty string"),
        (changed(name="mat.w", enc_type="PER_BLOCK", block_size=3), "do not divide"),
        (changed(name="mat.w", enc_type="PER_BLOCK", block_size=2), "1 scales, but .* 12 blocks"),
        (changed(name="x", enc_type="PER_CHANNEL"), "along an unknown axis"),
        (changed(name="conv.b", enc_type="PER_BLOCK", block_size=2), "not the weight of a layer"),
    ],
)
def test_a_bad_place(entry: Any, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(document(entry), MODEL)


def test_a_tensor_given_twice() -> None:
    with pytest.raises(LoadError, match="tensor 'x' already has an encoding"):
        read(document(ENTRY, ENTRY), MODEL)


def test_a_group_that_is_no_list() -> None:
    with pytest.raises(LoadError, match="'param_encodings' is not a list"):
        read('{"version": "1.0.0", "param_encodings": {}}', MODEL)
