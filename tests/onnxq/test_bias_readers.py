from __future__ import annotations

import numpy as np

from onnxq.bias_readers import bias_readers_followed
from onnxq.qparam_table import QParamTable
from onnxq.qparams import QParams, Reader, Role
from onnxq.qtype import qtype
from passes.apply_qparams import ApplyQParams
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant
from tests.build import apply, parse, quantize

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
