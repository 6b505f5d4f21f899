"""RKNN's hybrid quantization file, and back."""

from __future__ import annotations

import pytest
from hypothesis import given

from onnxq.formats.rknn_hybrid import FORMAT
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import BIASES, tables


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    kept = (r for r in table if r.tensor not in BIASES and not r.is_narrow)
    check_inverse(FORMAT, QParamTable(list(kept)))


TEXT = """custom_quantize_layers: {}
quantize_parameters:
    x:
        qtype: asym
        qmethod: layer
        dtype: int8
        min: [-63.0]
        max: [64.5]
        scale: [0.5]
        zero_point: [-2]
        ori_min: [-63.0]
        ori_max: [64.5]
"""


def test_layout() -> None:
    assert FORMAT.write(QParamTable([row("x", "int8", 0.5, -2)]), MODEL) == TEXT


def test_channels() -> None:
    weight = row("conv.w", "int8", [0.5] * 6, axis=0, role=Role.WEIGHT)
    text = FORMAT.write(QParamTable([weight]), MODEL)
    assert "qmethod: channel" in text
    assert "scale: [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]" in text


def test_items_below_their_key_are_read() -> None:
    text = TEXT.replace("min: [-63.0]", "min:\n        - -63.0", 1)
    text = text.replace("scale: [0.5]", "scale:\n          - 0.5") + "# the end\n"
    assert FORMAT.read(text, MODEL).rows == [row("x", "int8", 0.5, -2)]


def test_layers_set_to_float_stay_float() -> None:
    text = TEXT.replace("layers: {}", "layers:\n    x: float16\n    c: float16", 1)
    assert FORMAT.read(text, MODEL).rows == []
    assert FORMAT.float_tensors(text) == {"x", "c"}
    assert FORMAT.float_tensors(TEXT) == frozenset()


@pytest.mark.parametrize(
    "name", ["onnx::MatMul_69", "/a/b_0", "a: b", "it's", "12", "yes", "- x", "#x", " x ", "a:"]
)
def test_names_are_quoted_where_yaml_would_misread_them(name: str) -> None:
    text = FORMAT.write(QParamTable([row(name, "int8", 0.5)]), MODEL)
    (found,) = FORMAT.read(text, MODEL)
    assert found.tensor == name
    plain = name in ("onnx::MatMul_69", "/a/b_0")
    assert (f"\n    {name}:\n" in text) == plain


def test_small_numbers_have_a_point() -> None:
    text = FORMAT.write(QParamTable([row("x", "int8", 2.0**-20)]), MODEL)
    assert "scale: [9.5367431640625e-07]" in text
    tiny = FORMAT.write(QParamTable([row("x", "int8", 1e-30)]), MODEL)
    assert "e-" in tiny
    assert all("." in n for n in tiny.split("scale: [")[1].split("]")[0].split(", "))


def test_rows_that_do_not_fit_are_refused() -> None:
    refuses_rows(
        FORMAT,
        [row("x", "int8", lo=-127), row("a\nb", "int8")],
        "'x': codes -127..127",
        "cannot be printed",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("quantize_parameters: {}", "no section 'custom_quantize_layers'"),
        (TEXT.replace("dtype: int8", "dtype: complex"), "'dtype' is complex"),
        (TEXT.replace("qtype: asym", "qtype: sym"), "qtype sym"),
        (TEXT.replace("qtype: asym", "qtype: odd"), "'qtype' is \"odd\""),
        (
            TEXT.replace("scale: [0.5]", "scale: [nan]"),
            'line 9: item "nan" is not a finite decimal number',
        ),
        (TEXT.replace("scale: [0.5]", "scale: []"), "not a list of numbers"),
        (
            TEXT.replace("scale: [0.5]", "scale: [0.5, 0.5]"),
            "the lengths of 'scale'",
        ),
        (TEXT.replace("scale: [0.5]", "scale: [0.6]"), "'min' is -63"),
        (TEXT.replace("        scale: [0.5]\n", ""), "key 'scale' is missing"),
        (TEXT.replace("zero_point: [-2]", "zero_point: [-200]"), "'min' is"),
        (TEXT.replace("    x:", "  x:"), "line 3: its indentation is 2"),
        (TEXT.replace("qmethod: layer", "qtype: asym"), "line 5: duplicate key 'qtype'"),
        (TEXT + "    x:\n", "line 13: duplicate key 'x'"),
        (TEXT.rstrip()[:-2], "line 12: its list does not end; is the file complete"),
        (TEXT + "nonsense", "line 13: it is not"),
        (TEXT + "other:\n", "line 13: 'other:' does not belong here"),
        (TEXT.replace("layers: {}", "layers:\n    x: odd"), "'x': 'odd' is not a type"),
        ("- 3\n" + TEXT, "line 1: an item without a key"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
