"""The gain of a batch norm is moved into the scales: training is that of one that is not folded."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.operators.weight_axis import WeightAxis
from tests.torch_bridge.fake_quant.quantizers import Given, spec

torch = pytest.importorskip("torch", reason="the training side needs torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import torch_bridge as tb  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.fake_quant import algorithm  # noqa: E402
from torch_bridge.nn.bn_fold import gain  # noqa: E402
from torch_bridge.nn.gain_split import GainSplit, split_gain  # noqa: E402


def network(gamma: float) -> nn.Module:
    """Conv + BN + ReLU prepared with LSQ, its ranges set; one channel has another gain."""
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU())
    nn.init.uniform_(net[1].weight, 0.5, 1.5)
    nn.init.uniform_(net[1].running_var, 0.5, 2.0)
    with torch.no_grad():
        net[1].weight[2] = gamma
    x = torch.randn(4, 3, 8, 8)
    q = tb.prepare(net, "tensorrt", (x,), weight="lsq", activation="lsq")
    with tb.calibrating(q), torch.no_grad():
        q(x)
    tb.enable_quantization(q)
    return q.train()


def apart(q: nn.Module) -> tuple[nn.Module, nn.Module, nn.BatchNorm2d]:
    """The convolution of `network` with its quantizers, and its batch norm, not folded."""
    fused = copy.deepcopy(q.get_submodule("0"))
    layer = qnn.QatConv2d(3, 6, 3, bias=False, weight_quantizer=fused.weight_fake_quant)
    layer.weight = fused.weight
    return fused, layer, fused.bn


@pytest.mark.parametrize("gamma", [1.0, -0.7, 0.0])
def test_training_is_that_of_a_batch_norm_apart(gamma: float) -> None:
    """With one scale per channel, to the bit, gradients included, whatever the gain is."""
    q = network(gamma)
    x = torch.randn(4, 3, 8, 8)
    fused = q.get_submodule("0")
    _, layer, bn = apart(q)
    if gamma < 0:  # codes -127..127 are the same for the mirrored weight
        assert fused.weight_fake_quant.spec.lo == -fused.weight_fake_quant.spec.hi
    y, z = fused(x), torch.relu(bn(layer(x)))
    assert torch.equal(y, z)
    for result in (y, z):
        result.square().sum().backward()
    for ours, theirs in (
        (fused.weight, layer.weight),
        (fused.bn.weight, bn.weight),
        (fused.weight_fake_quant.scale, layer.weight_fake_quant.scale),
    ):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gamma", [1.0, -0.7, 0.0])
def test_eval_is_what_is_deployed(gamma: float) -> None:
    """FQ(W)·f is on the grid that `qparams` states, and equals BN after the layer."""
    q = network(gamma).eval()
    x = torch.randn(4, 3, 8, 8)
    fused = q.get_submodule("0")
    _, layer, bn = apart(q)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), torch.relu(bn.eval()(layer(x))), rtol=1e-4, atol=1e-5)
        weight, _ = fused.deployed_parameters()
        row = fused.weight_fake_quant.qparams("w")
        assert (row.scale > 0).all()
        got = fused._deployed_weight().numpy()
    live = gain(bn).detach().abs().numpy() > 0
    assert np.array_equal(got[live], row.fake(weight.numpy())[live])


def split(f: list[float], name: str, **fields: Any) -> GainSplit:
    of = spec("int4", **fields)
    return split_gain(torch.tensor(f), algorithm(name)(of, Given(0.1)), WeightAxis(0, 1))


def test_the_parts_of_a_gain() -> None:
    f = torch.tensor([0.5, -3.0, 0.0])
    scales, weights = split(f.tolist(), "lsq", axis=0)
    assert weights.tolist() == [1, -1, 1]
    assert torch.allclose(scales * weights, f, atol=1e-11)
    for name in ("tqt", "fixed"):
        scales, weights = split(f.tolist(), name, axis=0, power_of_two=name == "fixed")
        assert set(torch.frexp(scales).mantissa.tolist()) == {0.5}
        assert ((weights.abs() > 0.7) & (weights.abs() < 1.42)).all()
        assert torch.allclose(scales * weights, f, atol=1e-11)
    scales, weights = split(f.tolist(), "lsq")
    assert scales == pytest.approx(3.5 / 3)
    assert torch.allclose(scales * weights, f, atol=1e-11)
    scales, weights = split(f.tolist(), "nnie")
    assert scales is None
    assert torch.equal(weights, f)


def test_a_moving_variance_moves_no_code() -> None:
    """Two bits, and running variances that change by 100: the weights of the layer stay."""
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6))
    x = torch.randn(4, 3, 8, 8)
    q = tb.prepare(net, "tensorrt", (x,), weight={"bits": 2, "algorithm": "lsq"})
    with tb.calibrating(q), torch.no_grad():
        q(x)
    tb.enable_quantization(q, only="weights")
    q.train()
    with torch.no_grad():
        expected = q(x)
        q.get_submodule("0").bn.running_var.mul_(100)
        assert torch.equal(q(x), expected)


def test_what_is_dropped_at_random_is_dropped_in_fused_layers_too() -> None:
    """QDrop that quantizes no element in training is the float layer, and rounds in eval."""
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6)).train()
    x = torch.randn(4, 3, 8, 8)
    drop = {"algorithm": "qdrop", "options": {"probability": 0.0}}
    q = tb.prepare(net, "tensorrt", (x,), weight=drop)
    with tb.calibrating(q), torch.no_grad():
        q(x)
    net[1].load_state_dict(q.get_submodule("0").bn.state_dict())
    tb.enable_quantization(q, only="weights")
    y = net(x)
    torch.testing.assert_close(q(x), y, rtol=1e-5, atol=1e-5)
    assert (q.eval()(x) - net.eval()(x)).abs().max() > 1e-4


@pytest.mark.parametrize(
    "register",
    [
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
    ],
)
@pytest.mark.parametrize("everywhere", [False, True])
def test_hooks_of_the_quantizer_are_called(register: str, everywhere: bool) -> None:
    q = network(1.0)
    quantizer = q.get_submodule("0").weight_fake_quant
    seen = []

    def hook(module: nn.Module, *_: object) -> None:
        seen.append(module)

    if everywhere:
        name = register.replace("register_", "register_module_")
        handle = getattr(nn.modules.module, name)(hook)
    else:
        handle = getattr(quantizer, register)(hook)
    try:
        q(torch.randn(4, 3, 8, 8, requires_grad=True)).sum().backward()
    finally:
        handle.remove()
    assert seen.count(quantizer) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_frozen_statistics_make_activation_checkpointing_exact(reentrant: bool) -> None:
    """The second forward pass of a checkpoint repeats the first to the bit."""
    q = tb.freeze_bn_stats(network(1.0))
    other = copy.deepcopy(q)
    x = torch.randn(4, 3, 8, 8, requires_grad=True)
    q(x).square().sum().backward()
    checkpoint(other, x, use_reentrant=reentrant).square().sum().backward()
    pairs = zip(q.parameters(), other.parameters(), strict=True)
    learned = [(a, b) for a, b in pairs if a.requires_grad]
    assert len(learned) > 3
    assert all(torch.equal(a.grad, b.grad) for a, b in learned)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", ["fixed", "lsq", "dorefa", "dsq", "tqt", "qil", "apot"])
def test_files_and_folded_modules_compute_what_eval_computes(
    name: str, per_channel: bool, tmp_path: Path
) -> None:
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.BatchNorm2d(6), nn.ReLU())
    nn.init.uniform_(net[1].weight, -1.5, 1.5)
    x = torch.randn(8, 3, 8, 8)
    weight = {"bits": 4, "algorithm": name, "per_channel": per_channel}
    own = find_backend("academic")
    own = dataclasses.replace(own, placement=dataclasses.replace(own.placement, fuse=True))
    q = tb.prepare(net, own, (x,), weight=weight)
    with tb.calibrating(q), torch.no_grad():
        q(x)
    tb.enable_quantization(q)
    with torch.no_grad():
        for _ in range(3):
            q.train()(2 * x)  # moves the statistics away from those of the calibration
        expected = q.eval()(x)
        assert tb.deploy(q, (x,), tmp_path).proven
        with qnn.folded_bn(q):
            torch.testing.assert_close(q(x), expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(q(x), expected)
