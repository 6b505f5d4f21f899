"""Fused float layers are their float modules in one."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from tests.torch_bridge.nn.layers import ACTIVATIONS, CASES, Case, unfused  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402

CONV2D = next(case for case in CASES if case.name == "conv2d")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bits_are_those_of_the_modules(case: Case, activation: type | None) -> None:
    float_ = unfused(case, activation)
    fused = float_.fused(case)
    for mode in (True, False):
        x = case.input()
        assert torch.equal(fused.train(mode)(x), float_.train(mode)(x))
    for name, value in float_.bn.state_dict().items():
        assert torch.equal(fused.bn.state_dict()[name], value)


def test_is_its_layer_with_the_same_parameters() -> None:
    layer, bn = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
    fused = qnn.FusedConv2d.from_float(layer, bn, nn.ReLU())
    assert isinstance(fused, nn.Conv2d)
    assert fused.weight is layer.weight
    assert fused.bn is bn
    assert set(fused.state_dict()) == {"weight", "bias", *(f"bn.{n}" for n in bn.state_dict())}
    assert not list(layer.children()), "the float layer is as it was"


def test_activation_alone() -> None:
    layer = nn.Linear(3, 4)
    fused = qnn.FusedLinear.from_float(layer, nn.ReLU6())
    x = torch.randn(2, 5, 3)
    assert torch.equal(fused(x), nn.functional.relu6(layer(x)))


def test_freezing() -> None:
    fused = unfused(CONV2D).fused(CONV2D)
    before = fused.bn.running_mean.clone()
    fused.freeze_bn()
    fused.train()(CONV2D.input())
    assert torch.equal(fused.bn.running_mean, before)
    fused.unfreeze_bn()
    fused(CONV2D.input())
    assert not torch.equal(fused.bn.running_mean, before)


def test_constructor_and_copies() -> None:
    fused = qnn.FusedConv2d(3, 4, 3, padding=1, bn=nn.BatchNorm2d(4), activation=nn.ReLU())
    x = torch.randn(2, 3, 5, 5)
    twins = [copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))]
    expected = fused(x)
    assert all(torch.equal(twin(x), expected) for twin in twins)


def test_unfit_modules_are_refused() -> None:
    conv = nn.Conv2d(3, 4, 1)
    with pytest.raises(UnsupportedModelError, match="5 channels, but the layer computes 4"):
        qnn.FusedConv2d.from_float(conv, nn.BatchNorm2d(5))
    with pytest.raises(UnsupportedModelError, match="one batch norm and one activation"):
        qnn.FusedConv2d.from_float(conv, nn.ReLU(), nn.ReLU6())
