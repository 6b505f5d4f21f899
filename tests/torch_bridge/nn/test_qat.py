"""Quantized layers compute with the quantized weight, bias and input."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from tests.torch_bridge.nn.layers import CASES, Case, Off, max_abs_quantizer  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.nn.layout import channel_axis  # noqa: E402

all_layers = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@all_layers
def test_is_the_float_layer_with_quantized_tensors(case: Case) -> None:
    layer, x = case.make(), case.input()
    weight = max_abs_quantizer(layer.weight, channel_axis(layer))
    bias = None if layer.bias is None else max_abs_quantizer(layer.bias, None, bits=4)
    entry = max_abs_quantizer(x, None)
    ours = case.qat.from_float(copy.deepcopy(layer), weight, bias, entry)
    float_result = layer(x)
    with torch.no_grad():
        layer.weight.copy_(weight(layer.weight))
        if bias is not None:
            layer.bias.copy_(bias(layer.bias))
    assert torch.equal(ours(x), layer(entry(x)))
    assert not torch.allclose(ours(x), float_result), "the quantizers changed nothing"


@all_layers
def test_switched_off_gradients_are_the_float_layers(case: Case) -> None:
    layer, x = case.make(), case.input()
    twin = case.qat.from_float(copy.deepcopy(layer), Off())
    for module in (layer, twin):
        module(x).square().sum().backward()
    assert torch.equal(twin.weight.grad, layer.weight.grad)


@all_layers
def test_the_argument_has_the_name_of_torchs_own(case: Case) -> None:
    layer, x = case.make(), case.input()
    for ours in (case.fused, case.qat, case.fused_qat):
        quantizers = () if ours is case.fused else (Off(),)
        assert torch.equal(ours.from_float(layer, *quantizers)(input=x), layer(input=x))


def test_embedding() -> None:
    layer = nn.Embedding(9, 4)
    weight = max_abs_quantizer(layer.weight, None)
    ours = qnn.QatEmbedding.from_float(layer, weight)
    index = torch.tensor([0, 8, 3])
    assert torch.equal(ours(index), weight(layer.weight)[index])
    assert not torch.equal(ours(index), layer(index))


@all_layers
def test_names_and_identity(case: Case) -> None:
    layer = case.make()
    ours = case.qat.from_float(layer, Off())
    assert isinstance(ours, case.layer)
    assert ours.weight is layer.weight
    assert ours.state_dict().keys() == layer.state_dict().keys()


def test_constructor_and_copies() -> None:
    quantizer = max_abs_quantizer(torch.ones(4, 3), 0)
    ours = qnn.QatLinear(3, 4, weight_quantizer=quantizer)
    assert set(ours.state_dict()) == {
        "weight",
        "bias",
        "weight_fake_quant.scale",
        "weight_fake_quant.zero_point",
    }
    x = torch.randn(2, 3)
    twins = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    assert all(torch.equal(twin(x), ours(x)) for twin in twins)
