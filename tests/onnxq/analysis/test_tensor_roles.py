"""What tensors are to their readers."""

from __future__ import annotations

import pytest

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.errors import LoadError
from onnxq.quant.qparams import Role
from onnxq.quant.qtypes import qtype
from tests.models.build import parse, quantize, weight
from tests.onnxq.formats.tables import BIASES, SHAPES, model

PARTS = TensorParts(model())


@pytest.mark.parametrize("name", SHAPES)
def test_axes_of_weights(name: str) -> None:
    shape, channel, summed = SHAPES[name]
    assert PARTS.shape(name) == shape
    assert PARTS.channel_axis(name) == channel
    assert PARTS.input_axis(name) == summed
    assert PARTS.is_layer_parameter(name)
    assert PARTS.role(name, qtype("int8")) is Role.WEIGHT


@pytest.mark.parametrize("name", BIASES)
def test_biases(name: str) -> None:
    assert PARTS.is_layer_parameter(name)
    assert PARTS.channel_axis(name) == 0
    assert PARTS.role(name, qtype("int32")) is Role.BIAS
    with pytest.raises(LoadError, match="not the weight of a layer"):
        PARTS.input_axis(name)


def test_a_name_the_graph_does_not_have() -> None:
    assert PARTS.find("nowhere") is None
    assert PARTS.channel_axis("nowhere") == 0


@pytest.mark.parametrize("name", ["x", "c", "y"])
def test_activations(name: str) -> None:
    assert PARTS.shape(name) is None
    assert not PARTS.is_constant(name)
    assert not PARTS.is_layer_parameter(name)
    assert PARTS.role(name, qtype("uint8")) is Role.ACTIVATION
    with pytest.raises(LoadError, match="no linear layer has it as its weight"):
        PARTS.channel_axis(name)
    assert PARTS.find(name) is not None


TWO_WAYS = """g (float[4,4] x) => (float[4,4] y)
    <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float k = {2}> {
        a = Gemm<transB=1>(x, w)
        b = Gemm(a, w)
        y = Mul(b, k)
    }"""


def test_readers_that_disagree() -> None:
    parts = TensorParts(parse(TWO_WAYS))
    with pytest.raises(LoadError, match="its consumers disagree"):
        parts.channel_axis("w")
    assert parts.is_constant("k")
    assert not parts.is_layer_parameter("k")


def test_quantizers_are_looked_through() -> None:
    found = parse("g (float[1,2] x) => (float[1,3] y) <float[2,3] w = {1,2,3,4,5,6}> "
                  "{ y = MatMul(x, w) }")  # fmt: skip
    parts = TensorParts(weight(quantize(found, "x"), "w"))
    assert parts.channel_axis("w") == 1
    assert parts.is_layer_parameter("w")
    assert parts.find("x") is not None
