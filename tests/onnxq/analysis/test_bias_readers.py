from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.analysis.bias_readers import bias_readers_followed, bias_uses, read_as_bias
from onnxq.edit import read_by
from onnxq.errors import PassError
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from passes.apply_qparams import ApplyQParams
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant
from tests.models.build import apply, parse, quantize, tensor

TEXT = """g (float[1,2] x) => (float[1,2] y, float[1,2] z)
   <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> { y = Gemm(x, w, b) z = Gemm(x, w, b) }"""


def test_readers_follow_renamed_outputs() -> None:
    model = quantize(parse(TEXT), "y")
    raw = model.nodes("Gemm")[0].outputs[0].name
    assert raw != "y"
    readers = (Reader(raw, 2), Reader("z", 2), Reader("gone", 2))
    bias = QParams("b", qtype("int32"), np.float32(1e-3), 0, role=Role.BIAS, readers=readers)
    model.qparams = QParamTable([bias])
    clean, _ = apply(model, CollectQParams(), RemoveFakeQuant())
    names = [r.node for r in clean.qparams.of(Role.BIAS)[0].readers or ()]
    assert names == ["y", "z", "gone"]
    back, _ = apply(clean, ApplyQParams())
    names = [r.node for r in back.qparams.of(Role.BIAS)[0].readers or ()]
    assert names == [back.nodes("Gemm")[0].outputs[0].name, "z", "gone"]
    assert names[0] != "y"


def test_rows_that_name_nobody_are_left_alone() -> None:
    model = parse(TEXT)
    bias = QParams("b", qtype("int32"), np.float32(1e-3), 0, role=Role.BIAS)
    model.qparams = QParamTable([bias])
    with bias_readers_followed(model):
        model.nodes("Gemm")[0].outputs[0].name = "other"
    assert model.qparams.rows[0] is bias


def test_uses_of_a_bias_row() -> None:
    model = parse(TEXT)
    bias = QParams("b", qtype("int32"), np.float32(1e-3), 0, role=Role.BIAS)
    model.qparams = QParamTable([bias.with_(readers=(Reader("z", 2),))])
    (use,) = bias_uses(model)
    assert use.tensor.name == "b"
    np.testing.assert_array_equal(use.value, np.float32([1, 2]))
    assert [(read_by(node, index)) for node, index in use.uses] == [Reader("z", 2)]
    model.qparams = QParamTable([bias])
    assert len(bias_uses(model)[0].uses) == 2
    model.qparams = QParamTable([])
    assert bias_uses(model) == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"tensor": "c"}, "'c', which is not a constant"),
        ({"readers": (Reader("gone", 2),)}, "none of"),
    ],
)
def test_rows_about_nothing_are_errors(fields: dict[str, Any], word: str) -> None:
    model = parse(TEXT)
    row = QParams("b", qtype("int32"), np.float32(1e-3), 0, role=Role.BIAS)
    model.qparams = QParamTable([row.with_(**fields)])
    with pytest.raises(PassError, match=word):
        bias_uses(model)


def test_a_bias_is_read_as_nothing_else() -> None:
    model = parse(TEXT)
    assert read_as_bias(tensor(model, "b"), model)
    assert not read_as_bias(tensor(model, "w"), model)
    mixed = """g (float[1,2] x) => (float[1,2] y, float[1,2] z)
       <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 2}> { y = Gemm(x, w, b) z = Add(x, b) }"""
    model = parse(mixed)
    assert not read_as_bias(tensor(model, "b"), model)
