"""Power-of-two scales for Vitis AI, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.formats.mqbench_vitis import FORMAT
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import ACTIVATIONS, BIASES, SHAPES


@given(
    st.dictionaries(
        st.sampled_from([*ACTIVATIONS, *SHAPES, *BIASES]), st.integers(-30, 30), min_size=0
    )
)
def test_read_is_the_inverse_of_write(found: dict[str, int]) -> None:
    rows = [
        row(name, "int8", 2.0**power, role=Role.ACTIVATION if name in ACTIVATIONS else Role.WEIGHT)
        for name, power in found.items()
    ]
    check_inverse(FORMAT, QParamTable(rows))


def test_layout() -> None:
    text = FORMAT.write(QParamTable([row("x", "int8", 2.0**-7)]), MODEL)
    assert json.loads(text) == {"vitis": {"x": {"scale": 0.0078125}}}


def test_other_grids_are_refused_all_at_once() -> None:
    refuses_rows(
        FORMAT,
        [
            row("x", "int8", 0.3),
            row("c", "uint8", 0.5),
            row("u", "int8", 0.5, 3),
            row("p", "int8", 0.5, lo=-127),
            row("conv.w", "int8", [0.5] * 6, axis=0, role=Role.WEIGHT),
        ],
        "'x': scale 0.3 (must be a power of two)",
        "'c': type uint8",
        "'u': zero point 3",
        "'p': range -127..127",
        "'conv.w': one scale per channel",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"vitis": {"x": {"scale": 0.3}}}', "'x': scale 0.3 .must be a power of two"),
        ('{"vitis": {"x": {"scale": -0.5}}}', "scale -0.5"),
        ('{"vitis": {"x": {"scale": NaN}}}', "not a finite number"),
        ('{"vitis": {"x": {}}}', "key 'scale' is missing"),
        ('{"vitis": {"x": {"scale": 0.5, "bit": 8}}}', "unknown key 'bit'"),
        ('{"vitis": {"x": {"scale": 0.5}, "x": {"scale": 0.5}}}', "duplicate key 'x'"),
        ('{"vitis": []}', "not an object"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
