"""MQBench's ranges for SNPE: a width and both ends, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.formats.mqbench_snpe import FORMAT, read, write
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from tests.onnxq.formats.tables import ACTIVATIONS, SCALES, model

MODEL = model()


def row(
    name: str = "x", kind: str = "uint8", scale: float = 0.1, zero: int = 0, **more: Any
) -> Any:
    return QParams(name, qtype(kind), np.asarray(scale), np.asarray(zero), **more)


def document(**tensors: Any) -> str:
    entries = {
        name: [dict(zip(("bitwidth", "min", "max"), e, strict=True))] for name, e in tensors.items()
    }
    return json.dumps({"activation_encodings": entries, "param_encodings": {}})


@st.composite
def tables(draw: st.DrawFn) -> QParamTable:
    made = QParamTable()
    for name in draw(st.lists(st.sampled_from(ACTIVATIONS), unique=True)):
        scale = draw(SCALES)
        if draw(st.booleans()):
            bits = draw(st.sampled_from([4, 8, 16]))
            made.add(row(name, f"int{bits}", scale, lo=1 - (1 << bits - 1)))
            continue
        bits = draw(st.sampled_from([3, 4, 7, 8, 16]))
        held = next(b for b in (4, 8, 16) if b >= bits)
        top = (1 << bits) - 1
        made.add(row(name, f"uint{held}", scale, draw(st.integers(0, top)), lo=0, hi=top))
    return made


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    text = write(table, MODEL)
    assert FORMAT.recognises(text)
    assert read(text, MODEL).rows == table.rows
    assert write(read(text, MODEL), MODEL) == text


@given(SCALES, st.integers(-128, 127))
def test_signed_types_read_back_as_unsigned_ones(scale: float, zero: int) -> None:
    (again,) = read(write(QParamTable([row("x", "int8", scale, zero)]), MODEL), MODEL)
    assert again == row("x", "uint8", scale, zero + 128)


def test_layout() -> None:
    document = json.loads(write(QParamTable([row(scale=0.5, zero=3)]), MODEL))
    assert document == {
        "activation_encodings": {"x": [{"bitwidth": 8, "min": -1.5, "max": 126.0}]},
        "param_encodings": {},
    }


def test_seven_bits_of_a_symmetric_range_are_eight() -> None:
    (found,) = read(document(x=(7, -12.7, 12.7)), MODEL)
    assert found == row("x", "int8", 0.1, lo=-127)
    (plain,) = read(document(x=(7, -6.4, 6.3)), MODEL)
    assert plain == row("x", "uint8", 0.1, 64, hi=127)


def test_a_weight_among_the_activations_is_a_weight() -> None:
    (found,) = read(document(**{"up.w": (8, -12.8, 12.7)}), MODEL)
    assert found.role is Role.WEIGHT


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ((8, 2.835, 2.813), "min 2.835 is not below max 2.813"),
        ((8, 1.0, 1.0), "is not below"),
        ((8, -1.0, 1.05), "no code is exactly zero"),
        ((8, 1.0, 2.0), "zero point -255"),
        ((8.5, -1.0, 1.0), "not an integer"),
        ((0, -1.0, 2.0), "0 bits"),
        ((32, -1.0, 1.0), "32 bits"),
        ((16, -1.0, 1.0), "17 bits"),
        ((8, "-1", 1.0), "'min' is \"-1\""),
        ((8, -1.0, float("nan")), "'max' is NaN"),
    ],
)
def test_a_bad_entry_names_tensor_and_key(entry: Any, why: str) -> None:
    with pytest.raises(LoadError) as caught:
        read(document(x=entry), MODEL)
    assert "tensor 'x'" in caught.value.what
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "not an object"),
        ("{}", "key 'activation_encodings' is missing"),
        ('{"activation_encodings": {}, "encodings": []}', "unknown key 'encodings'"),
        ('{"activation_encodings": {}, "param_encodings": {"w": []}}', "is not empty"),
        ('{"activation_encodings": {}, "param_encodings": -0.0}', "'param_encodings' is -0.0"),
        ('{"activation_encodings": {"x": []}}', "not a list of entries"),
        ('{"activation_encodings": {"x": [{}]}}', "is missing"),
        ('{"activation_encodings": {"x": [{}, {}]}}', "tensor 'x' has 2 entries, not one"),
        ('{"activation_encodings": {"x": [], "x": []}}', "duplicate key 'x'"),
    ],
)
def test_another_document_is_refused(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        read(text, MODEL)


def test_what_ranges_cannot_say_is_refused_at_once() -> None:
    rows = [
        QParams("x", qtype("uint8"), np.ones(4), np.zeros(()), axis=1),
        row("c", readers=(Reader("u", 0),)),
        row("u", lo=1, zero=1),
        row("p"),
        row("p"),
        row("g"),
    ]
    with pytest.raises(SaveError) as caught:
        write(QParamTable(rows), MODEL)
    for text in (
        "4 of the tensors",
        "'x': one scale per",
        "'c': only some",
        "'u': codes 1",
        "'p': it has",
    ):
        assert text in caught.value.what


@pytest.mark.parametrize(
    "text",
    [
        '{"version": "0.6.1", "activation_encodings": {}}',
        '{"activation_encodings": {"x": [{"bitwidth": 8, "min": 0, "max": 1, "offset": 3}]}}',
        '{"activation_encodings": [], "param_encodings": []}',
        '{"tensorrt": {"blob_range": {}}}',
        "TRT-8601",
    ],
)
def test_files_of_others_are_not_taken_for_this(text: str) -> None:
    assert not FORMAT.recognises(text)
