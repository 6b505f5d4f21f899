"""PPQ's encodings for QNN, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from onnxq.formats.ppq_qnn import FORMAT
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import BIASES, tables


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, QParamTable([r for r in table if r.tensor not in BIASES]))


def test_layout() -> None:
    rows = [row("x", "uint8", 0.5, 3), row("mat.w", "int8", 0.25, role=Role.WEIGHT)]
    assert json.loads(FORMAT.write(QParamTable(rows), MODEL)) == {
        "activation_encodings": {
            "x": [{"bitwidth": 8, "max": 126.0, "min": -1.5, "offset": 3, "scale": 0.5}]
        },
        "param_encodings": {
            "mat.w": [{"bitwidth": 8, "max": 31.75, "min": -32.0, "offset": 0, "scale": 0.25}]
        },
    }


def test_narrow_ranges_are_refused() -> None:
    refuses_rows(FORMAT, [row("x", "int8", lo=-127)], "codes -127..127")


def document(group: str = "activation_encodings", name: str = "x", **changes: Any) -> str:
    entry = {"bitwidth": 8, "max": 126.0, "min": -1.5, "offset": 3, "scale": 0.5}
    made = {k: v for k, v in (entry | changes).items() if v is not None}
    return json.dumps({"activation_encodings": {}, "param_encodings": {}} | {group: {name: [made]}})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"activation_encodings": {}}', "key 'param_encodings' is missing"),
        (document(scale=None), "'activation_encodings', tensor 'x', entry 0: key 'scale'"),
        (document(scale=-0.5, min=1.5, max=-126.0), "scale -0.5"),
        (document(max=12.0), "'max' is 12"),
        (document(offset=2), "'min' is -1.5"),
        (document(bitwidth=3.5), "not an integer"),
        (document(bitwidth=77), "77 bits"),
        (document(dtype="int"), "unknown key 'dtype'"),
        ('{"activation_encodings": {"x": []}, "param_encodings": {}}', "not a list of entries"),
        (
            '{"activation_encodings": {"x": [{}, 1]}, "param_encodings": {}}',
            "entry 1 is 1, not an object",
        ),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)


def test_a_tensor_in_both_groups_is_refused() -> None:
    made = json.loads(document())
    made["param_encodings"] = made["activation_encodings"]
    refuses_text(FORMAT, json.dumps(made), "already has an encoding")
