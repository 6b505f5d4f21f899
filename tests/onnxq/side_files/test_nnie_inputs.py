"""Which inputs NNIE has numbers for."""

from __future__ import annotations

import pytest

from onnxq.graph import Model
from onnxq.side_files.nnie_inputs import float_tensor, is_own_weight, writable_inputs
from tests.models.build import log_quantize, parse, tensor


def one(text: str) -> Model:
    return parse(
        f"""g (float[1,4,4,4] x, float[1,4,4,4] z, int64[4] n) => (float[?] y)
        <float[4,4,1,1] w = {{{", ".join(["1"] * 16)}}}, float[4,1,1,1] d = {{1, 1, 1, 1}},
         float[4,4] m = {{{", ".join(["1"] * 16)}}}, float[4] b = {{0, 0, 0, 0}},
         float s = {{2}}, int64[1] i = {{1}}, float[4] up = {{1, 1, 2, 2}}>
        {{ y = {text} }}"""
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Conv(x, w, b)", [0]),
        ("Conv<group=4>(x, d, b)", []),
        ("ConvTranspose(x, w, b)", [0, 1]),
        ("Gemm(x, m, b)", [0]),
        ("Gemm(x, z, b)", [0, 1]),
        ("MatMul(x, m)", [0, 1]),
        ("Add(x, z)", [0, 1]),
        ("Add(x, s)", [0, 1]),
        ("Concat<axis=1>(x, z)", [0, 1]),
        ("Slice(x, i, i)", [0]),
        ('Resize(x, "", up)'.replace('""', ""), [0]),
        ("MaxPool<kernel_shape=[2,2]>(x)", [0]),
        ("Mul(x, z)", []),
        ("Relu(x)", []),
        ("Reshape(x, n)", []),
        ("GlobalAveragePool(x)", []),
        ("Softmax(x)", []),
    ],
)
def test_told_inputs(text: str, want: list[int]) -> None:
    assert writable_inputs(one(text).nodes()[0]) == want


def test_a_quantized_weight_is_one_too() -> None:
    model = log_quantize(one("Conv(x, w, b)"), "w", 1.0)
    (node,) = model.nodes("Conv")
    assert is_own_weight(node, 1)
    assert not is_own_weight(node, 0)
    assert writable_inputs(node) == [0]
    assert float_tensor(node.inputs[1]) is tensor(model, "w")
    assert float_tensor(node.inputs[0]) is node.inputs[0]
