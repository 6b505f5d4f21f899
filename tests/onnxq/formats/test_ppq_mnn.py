"""PPQ's steps for MNN, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError, SaveError
from onnxq.formats.ppq_mnn import FORMAT
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from onnxq.proof.verify import verify
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader
from onnxq.workflows.encodings import detect
from passes.apply_qparams import ApplyQParams
from tests.models.zoo_build import Build
from tests.onnxq.formats.check import refuses_text, row
from tests.onnxq.formats.tables import SCALES

SHAPE = {"channels": 3, "height": 8, "width": 8}


def network() -> Model:
    """Two convolutions with Relu and Clip behind them, a sum, and a pool that a third one reads."""
    b = Build()
    first = b.op("Relu", b.conv(b.input("x", [1, 3, 8, 8]), 3, 3, out="a"), out="ar")
    zero, six = b.init(np.float32(0)), b.init(np.float32(6))
    second = b.op("Clip", b.conv(first, 3, 3, out="b"), zero, six, out="bc")
    third = b.conv(second, 3, 3, out="c")
    total = b.op("Add", third, first, out="s")
    pooled = b.op("MaxPool", total, out="p", kernel_shape=[2, 2])
    return from_proto(b.model(b.op("Sigmoid", b.conv(pooled, 3, 3, out="d"), out="y")))


NET = network()


def step(name: str, scale: float, *readers: Reader) -> QParams:
    made: QParams = row(name, "int8", scale, lo=-127, readers=readers or None)
    return made


def document(steps: dict[str, Any], shape: Any = SHAPE) -> str:
    return json.dumps({"shape": shape} | steps)


FILE = {
    "a input_tensor_0": 0.5,
    "a output_tensor_0": 0.25,
    "b input_tensor_0": 0.25,
    "b output_tensor_0": 0.125,
    "c input_tensor_0": 0.125,
    "c output_tensor_0": 0.75,
    "s output_tensor_0": 0.25,
    "d input_tensor_0": 2.0,
    "d output_tensor_0": 3.0,
}
ROWS = [
    step("x", 0.5),
    step("ar", 0.25),
    step("bc", 0.125),
    step("c", 0.75),
    step("s", 0.25),
    step("p", 2.0),
    step("d", 3.0),
]


def test_layout() -> None:
    text = FORMAT.write(QParamTable(ROWS), NET)
    assert isinstance(text, str)
    assert json.loads(text) == json.loads(document(FILE))
    assert FORMAT.read(text, NET).rows == ROWS


def test_it_is_told_by_its_content() -> None:
    assert detect(document(FILE).encode(), "file") is FORMAT
    assert detect(document({}).encode(), "file") is FORMAT
    assert not FORMAT.recognises(document(FILE, {"width": 3}))
    assert not FORMAT.recognises(document({"a input_tensor_1": 0.5}))
    assert not FORMAT.recognises('{"shape": 3, "a input_tensor_0": 0.5}')


@given(
    st.lists(st.sampled_from([r.tensor for r in ROWS]), unique=True),
    st.data(),
    st.sampled_from([None, "b", "d"]),
)
def test_read_is_the_inverse_of_write(names: list[str], data: Any, own: str | None) -> None:
    rows = [step(name, data.draw(SCALES)) for name in names]
    if own is not None:  # a convolution that reads on a grid of its own, behind the first if any
        reads = {"b": "ar", "d": "p"}[own]
        if reads == "ar" or reads not in names:
            rows.append(step(reads, 2.0**30, Reader(own, 0)))
    table = QParamTable(rows)
    text = FORMAT.write(table, NET)
    again = FORMAT.read(text, NET)
    assert FORMAT.write(again, NET) == text
    # The only reader of a tensor is all of them.
    plain = [r.with_(readers=None) if r.tensor == "p" else r for r in rows]
    assert sorted(again.rows, key=_order) == sorted(plain, key=_order)


def _order(row: QParams) -> tuple[str, bool]:
    return row.tensor, row.readers is not None


def test_a_convolution_may_read_on_its_own_grid() -> None:
    changed = FILE | {"b input_tensor_0": 0.375}
    found = [r for r in FORMAT.read(document(changed), NET) if r.tensor == "ar"]
    assert found == [step("ar", 0.25), step("ar", 0.375, Reader("b", 0))]


def test_what_others_read_stays_as_it_is() -> None:
    found = FORMAT.read(document({"b input_tensor_0": 0.5, "d input_tensor_0": 0.5}), NET)
    assert found.rows == [step("ar", 0.5, Reader("b", 0)), step("p", 0.5)]


def test_rows_of_layers_and_rows_behind_their_functions_compute_the_same() -> None:
    """As the file says it, layer by layer, and as it is read."""
    literal = [step("x", 0.02), step("a", 0.03), step("ar", 0.03, Reader("b", 0))]
    literal += [step("b", 0.011), step("bc", 0.011), step("c", 0.03), step("s", 0.017)]
    literal += [step("p", 0.019), step("d", 0.013)]
    steps = {
        "a input_tensor_0": 0.02,
        "a output_tensor_0": 0.03,
        "b input_tensor_0": 0.03,
        "b output_tensor_0": 0.011,
        "c input_tensor_0": 0.011,
        "c output_tensor_0": 0.03,
        "s output_tensor_0": 0.017,
        "d input_tensor_0": 0.019,
        "d output_tensor_0": 0.013,
    }
    read = FORMAT.read(document(steps), NET)
    assert len(read.rows) == len(literal) - 2
    models = []
    for table in (QParamTable(literal), read):
        model = network()
        model.qparams = table
        models.append(Pipeline(ApplyQParams()).run(model).model)
    random = np.random.default_rng(0)
    data = [{"x": random.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    assert all(o.max == 0 for o in verify(models[0], models[1], data).outputs)


def test_sizes_that_are_not_known_are_left_out() -> None:
    b = Build()
    net = from_proto(b.model(b.conv(b.input("x", [1, 3, "h", 8]), 3, 3, out="y")))
    text = FORMAT.write(QParamTable([step("y", 0.5)]), net)
    assert isinstance(text, str)
    assert json.loads(text) == {"shape": {}, "y output_tensor_0": 0.5}
    named = document({"y output_tensor_0": 0.5}, SHAPE | {"height": "h"})
    assert FORMAT.read(text, net).rows == FORMAT.read(named, net).rows == [step("y", 0.5)]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([row("x", "int8", 0.5)], "'x': range -128..127"),
        ([row("x", "uint8", 0.5)], "'x': type uint8"),
        ([row("c", "int8", 0.5, 3, lo=-127)], "'c': zero point 3"),
        ([row("c", "int8", [0.5] * 3, axis=1, lo=-127)], "'c': one scale per channel"),
        ([step("y", 0.5)], "'y': its producer is neither Conv nor Add"),
        ([step("ar", 0.5, Reader("s", 1))], "'ar': its producer is neither Conv nor Add"),
        ([step("nowhere", 0.5)], "'nowhere': its producer is neither"),
        ([step("c", 0.5), step("c", 0.25)], "'c': it has several quantizers"),
        ([step("p", 0.5), step("p", 0.25, Reader("d", 0))], "'p': it has several quantizers"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: list[QParams], why: str) -> None:
    with pytest.raises(SaveError) as caught:
        FORMAT.write(QParamTable(rows), NET)
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not a file of PPQ for MNN: line 1"),
        ("[]", "the file is \\[\\], not an object"),
        ("{}", "key 'shape' is missing"),
        (document({}, 3), "'shape' is 3, not an object"),
        (document({}, {"channels": 3}), "'shape': key 'height' is missing"),
        (document({}, SHAPE | {"width": 0}), "'shape': 'width' is 0"),
        (document({}, SHAPE | {"width": None}), "'shape': 'width' is null"),
        (document({"c input_tensor_1": 0.5}), "unknown key 'c input_tensor_1'"),
        (document({"c": 0.5}), "unknown key 'c'"),
        (document({"c input_tensor_0": "0.5"}), "'c input_tensor_0' is \"0.5\""),
        (document({"c input_tensor_0": [0.5]}), "'c input_tensor_0' is \\[0.5\\]"),
        (document({"c input_tensor_0": 0.0}), "key 'c input_tensor_0': .*scale 0"),
        (document({"c output_tensor_0": float("nan")}), "'c output_tensor_0' is NaN"),
        ('{"shape": {}, "c output_tensor_0": 1, "c output_tensor_0": 2}', "duplicate key"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)


def test_keys_of_another_model_are_refused_together() -> None:
    keys = ("e input_tensor_0", "p output_tensor_0", "s input_tensor_0")
    with pytest.raises(LoadError) as caught:
        FORMAT.read(document(FILE | dict.fromkeys(keys, 0.5)), NET)
    assert all(f"'{key}'" in caught.value.what for key in keys)
    assert "3 keys" in caught.value.what
