from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import Model
from onnxq.reading import canonical
from onnxq.running import sessions
from passes.read_ppq import ReadPpq
from tests.models.build import apply, ops, parse, reasons


def spread(x: np.ndarray, stride: int, extra: int) -> np.ndarray:
    """What InsertZeros means, written out."""
    n, c, *sizes = x.shape
    out = np.zeros((n, c, *[(size - 1) * stride + 1 + extra for size in sizes]), x.dtype)
    out[(..., *[slice(None, (size - 1) * stride + 1, stride) for size in sizes])] = x
    return out


@pytest.mark.parametrize(("stride", "extra"), [(2, 0), (3, 0), (2, 1), (3, 2)])
def test_zeros_are_inserted_exactly(stride: int, extra: int) -> None:
    model = parse(
        f"""g (float[1,3,4,5] x) => (float[A,B,C,D] y) {{ y = InsertZeros
        <stride = [{stride}, {stride}], output_padding = [{extra}, {extra}]> (x) }}"""
    )
    read, trace = apply(model, ReadPpq())
    assert ops(read) == ["ConvTranspose"]
    assert len(trace.rewrites) == 1
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    assert np.array_equal(sessions.reference(read).run({"x": x})["y"], spread(x, stride, extra))


def test_channels_are_found_in_the_weight_of_the_convolution_behind() -> None:
    model = parse(
        """g (float[N,M,H,W] x, float[2,3,1,1] unused) => (float[A,B,C,D] y)
        <float[2,3,1,1] w = {1,2,3,4,5,6}, float s = {0.5}, int8 z = {0}> {
            r = Relu(x)
            i = InsertZeros <stride = [2, 2], output_padding = [0, 0]> (r)
            q = QuantizeLinear(i, s, z)
            d = DequantizeLinear(q, s, z)
            y = Conv(d, w)
        }"""
    )
    read, _ = apply(model, ReadPpq())
    (spreader,) = read.nodes("ConvTranspose")
    assert spreader.attrs["group"] == 3


def test_unknown_channels_are_left_with_the_reason() -> None:
    model = parse(
        """g (float[N,M,H,W] x) => (float[A,B,C,D] y) {
        y = InsertZeros <stride = [2, 2], output_padding = [0, 0]> (x) }"""
    )
    read, trace = apply(model, ReadPpq())
    assert ops(read) == ["InsertZeros"]
    assert "channels of 'x'" in reasons(trace)


def test_an_operator_of_that_name_in_another_domain_is_not_ppq() -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = InsertZeros(x) }")
    read, trace = apply(model, ReadPpq())
    assert ops(read) == ["InsertZeros"]
    assert trace.rewrites == []


def table(step: int, op: str = "Sigmoid", scale: str = "0.001", more: str = "") -> Model:
    """An activation that ESP-DL looks up in a table, between two 16-bit quantizers."""
    return parse(
        f"""g (float[N] x) => (float[N] y)
        <float s = {{{scale}}}, float t = {{0.0001}}, int16 z = {{0}}> {{
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            f = LUT <original_op_type = "{op}", int16_lut_step = {step}{more}> (d)
            p = QuantizeLinear(f, t, z)
            y = DequantizeLinear(p, t, z)
        }}""",
        opset=21,
    )


@pytest.mark.parametrize("step", [1, 2, 32, 256])
def test_a_table_of_every_nth_code_is_a_coarser_quantizer_before_the_function(step: int) -> None:
    """Held to the table itself, over every code: the entry nearest to it, ties to the even one."""
    read, trace = apply(table(step, scale="0.000244140625"), ReadPpq())
    assert len(trace.rewrites) == 1
    codes = np.arange(-(2**15), 2**15)
    x = (codes * 2.0**-12).astype(np.float32)
    entries = (np.arange(65536 // step + 1) * step - 2**15) * 2.0**-12
    stored = np.clip(np.round(1 / (1 + np.exp(-entries)) / np.float32(1e-4)), -(2**15), 2**15 - 1)
    want = stored[np.round((codes + 2**15) / step).astype(int)]
    got = np.round(sessions.reference(read).run({"x": x})["y"] / 1e-4)
    # The function is computed in float32 here.
    assert np.abs(got - want).max() <= 1
    assert np.mean(got != want) < 1e-3


def test_attributes_and_opset_of_the_function_are_kept() -> None:
    model = table(32, op="LeakyRelu", more=", alpha = 0.25")
    read, _ = apply(model, ReadPpq())
    (node,) = read.nodes("LeakyRelu")
    assert dict(node.attrs) == {"alpha": 0.25}
    model = table(32, op="Swish", more=", alpha = 0.5")
    done = canonical(model)[0]
    assert done.opset == 24
    assert len(done.nodes("Swish")) == 1


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (table(48), "interpolates"),
        (table(0), "interpolates"),
        (parse("g (float[N] x) => (float[N] y) { y = LUT(x) }"), ""),
        (
            parse(
                """g (float[N] x) => (float[N] y) {
                y = LUT <original_op_type = "Tanh", int16_lut_step = 32> (x) }"""
            ),
            "scale of 'x'",
        ),
    ],
)
def test_other_tables_are_left_with_the_reason(model: Model, why: str) -> None:
    read, trace = apply(model, ReadPpq())
    assert len(read.nodes("LUT")) == 1
    assert trace.rewrites == []
    assert why in reasons(trace) if why else trace.skips == []
