from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import onnxq
from onnxq.dialects.quantizing_operators import UNREADABLE, check_readable
from onnxq.discovery import passes
from onnxq.edit import constant, set_input
from onnxq.errors import UnsupportedModelError
from onnxq.reading import READERS
from onnxq.workflows.summary import summarize
from passes.phases import READ
from tests.models.build import parse

DYNAMIC = """g (float[2,4] x, int8[4,3] w) => (float[2,3] y) <int8 wz = {0}, float ws = {0.1}> {
    q, s, z = DynamicQuantizeLinear(x)
    i = MatMulInteger(q, w, z, wz)
    f = Cast <to = 1> (i)
    m = Mul(s, ws)
    y = Mul(f, m)
}"""


def test_backends_read_with_every_reader_in_order() -> None:
    assert [step.name for step in READ] == list(READERS)


def test_every_pass_that_reads_is_among_the_readers() -> None:
    assert {name for name in passes() if name.startswith("read-")} <= set(READERS)


def test_dynamic_quantization_is_refused_with_what_to_do() -> None:
    model = parse(DYNAMIC)
    for refuse in (check_readable, lambda m: onnxq.convert(m, "onnxruntime")):
        with pytest.raises(UnsupportedModelError, match="DynamicQuantizeLinear") as caught:
            refuse(model)
        assert "dynamic quantization" in caught.value.what
        assert "calibration" in str(caught.value.fix)


def test_inspect_names_what_cannot_be_read() -> None:
    found = summarize(parse(DYNAMIC))
    assert "dynamic quantization (not readable)" in found.dialects
    assert any("dynamic quantization" in skip.reason for skip in found.unread)


def test_several_refused_nodes_are_counted() -> None:
    body = """g (float[2] x) => (float[2] y) {
        a = com.amd.quark.BFPQuantizeDequantize(x)
        y = com.amd.quark.BFPQuantizeDequantize(a)
    }"""
    model = parse(body)
    with pytest.raises(UnsupportedModelError, match="and 1 more: block floating point"):
        check_readable(model)


def test_dialects_are_named_by_what_the_file_holds() -> None:
    qdq = """g (float[2] x) => (float[2] y) <float s = {0.5}, uint8 z = {3}> {
        q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z)
    }"""
    assert summarize(parse(qdq)).dialects == ["QDQ"]
    assert summarize(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")).dialects == []


def test_no_two_refusals_claim_the_same_operator() -> None:
    ops = [op for kind in UNREADABLE for op in kind.ops]
    assert len(ops) == len(set(ops))


def test_layers_with_float8_weights_and_no_scales_are_refused() -> None:
    weight = np.array([[1, 2], [3, 4]], ml_dtypes.float8_e4m3fn)
    model = parse("g (float[1,2] x, float[2,2] w) => (float[1,2] y) { y = MatMul(x, w) }")
    set_input(model.nodes("MatMul")[0], 1, constant(model, "w8", weight))
    with pytest.raises(UnsupportedModelError, match="arithmetic on float8"):
        check_readable(model)
