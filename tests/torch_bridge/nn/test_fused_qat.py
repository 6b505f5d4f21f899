"""Fused quantized layers: equal to the float chain when off, the deployed form in eval."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from tests.torch_bridge.nn.layers import (  # noqa: E402
    ACTIVATIONS,
    CASES,
    Case,
    Off,
    close,
    max_abs_quantizer,
    unfused,
)
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.nn.bn_fold import SMALLEST_GAIN, folded_bias, gain  # noqa: E402
from torch_bridge.nn.layout import channel_axis, scale_channels, weight_layout  # noqa: E402

CONV2D = next(case for case in CASES if case.name == "conv2d")
all_layers = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def same_step(expected: nn.Module, actual: nn.Module, x: torch.Tensor) -> None:
    """Equal results, input gradients, parameter gradients and statistics.

    In float64, where what is left of sums that cancel (the bias before a BN) is small too.
    """
    expected.double(), actual.double()
    xs = [x.double().requires_grad_() for _ in range(2)]
    ys = [module(inp) for module, inp in zip((expected, actual), xs, strict=True)]
    assert close(ys[1], ys[0], 1e-10)
    weights = torch.randn_like(ys[0])
    for y in ys:
        (y * weights).sum().backward()
    assert close(xs[1].grad, xs[0].grad, 1e-10)
    layer, bn = expected.layer, expected.bn
    for want, got in (
        (layer.weight, actual.weight),
        (layer.bias, actual.bias),
        (bn.weight, actual.bn.weight),
        (bn.bias, actual.bn.bias),
    ):
        if want is None:
            assert got is None
        else:
            assert close(got.grad, want.grad, 1e-10)
    same_statistics(bn, actual.bn, 1e-10)


def same_statistics(expected: nn.Module, actual: nn.Module, tolerance: float = 1e-5) -> None:
    assert close(actual.running_mean, expected.running_mean, tolerance)
    assert close(actual.running_var, expected.running_var, tolerance)
    assert torch.equal(actual.num_batches_tracked, expected.num_batches_tracked)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("training", [True, False])
@all_layers
def test_switched_off_it_computes_as_the_float_modules(
    case: Case, training: bool, activation: type | None
) -> None:
    float_ = unfused(case, activation).train(training)
    quantized = float_.quantized(case, Off()).train(training)
    for _ in range(3):
        x = case.input()
        assert close(quantized(x), float_(x))
        same_statistics(float_.bn, quantized.bn)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@all_layers
def test_switched_off_it_trains_as_the_float_modules(case: Case, activation: type | None) -> None:
    float_ = unfused(case, activation)
    quantized = float_.quantized(case, Off())
    for _ in range(3):
        for module in (float_, quantized):
            module.zero_grad()
        same_step(float_, quantized, case.input())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@all_layers
def test_switched_off_it_evaluates_as_the_float_modules(
    case: Case, activation: type | None
) -> None:
    float_ = unfused(case, activation)
    quantized = float_.quantized(case, Off())
    before = copy.deepcopy(quantized.bn.state_dict())
    same_step(float_.eval(), quantized.eval(), case.input())
    assert all(torch.equal(before[k], v) for k, v in quantized.bn.state_dict().items())


@all_layers
def test_eval_is_the_deployed_form(case: Case) -> None:
    float_ = unfused(case, nn.ReLU)
    f = gain(float_.bn)
    weight = scale_channels(float_.layer.weight, f, weight_layout(float_.layer))
    quantizer = max_abs_quantizer(weight, channel_axis(float_.layer))
    quantized = float_.quantized(case, quantizer).eval()
    deployed = copy.deepcopy(float_.layer)
    with torch.no_grad():
        deployed.weight.copy_(quantizer(weight))
        deployed.bias = nn.Parameter(folded_bias(float_.bn, float_.layer.bias, f))
    x = case.input()
    assert torch.equal(quantized(x), torch.relu(deployed(x)))
    assert not close(quantized(x), float_.eval()(x)), "the quantizer changed nothing"


@all_layers
def test_batch_form_is_the_documented_formula(case: Case) -> None:
    """y = BN(layer(x, FQ(W·f)) / f + b), the division done on the activations here."""
    float_ = unfused(case)
    with torch.no_grad():
        float_.bn.weight.copy_(float_.bn.weight.sign() * (float_.bn.weight.abs() + 0.1))
    layer, bn = copy.deepcopy(float_.layer), copy.deepcopy(float_.bn)
    f = gain(bn)
    weight = scale_channels(layer.weight, f, weight_layout(layer))
    quantizer = max_abs_quantizer(weight, channel_axis(layer))
    bias, layer.bias = layer.bias, None
    x = case.input()
    with torch.no_grad():
        layer.weight.copy_(quantizer(weight))
        view = (-1, *[1] * (weight.dim() - 2))
        unscaled = layer(x) / f.view(view) + (0 if bias is None else bias.view(view))
        expected = bn(unscaled)
        quantized = float_.quantized(case, quantizer)
        assert close(quantized(x), expected)
        assert not close(expected, float_(x)), "the quantizer changed nothing"
    same_statistics(bn, quantized.bn)


@pytest.mark.parametrize("training", [True, False])
@all_layers
def test_zero_and_negative_gains_are_safe(case: Case, training: bool) -> None:
    float_ = unfused(case, nn.ReLU)
    with torch.no_grad():
        float_.bn.weight[0] = 0.0
        float_.bn.weight[1] = -0.0
        float_.bn.weight[2] = -1.5
        float_.bn.weight[3] = 1e-30
    quantized = float_.quantized(case, Off())
    same_step(float_.train(training), quantized.train(training), case.input())


def test_a_zero_gain_learns_although_its_weights_are_quantized_to_zero() -> None:
    float_ = unfused(CONV2D)
    with torch.no_grad():
        float_.bn.weight.zero_()
    quantized = float_.quantized(CONV2D, max_abs_quantizer(torch.ones(6, 4, 3, 3), 0))
    x = CONV2D.input()
    y = quantized(x)
    assert torch.equal(y, quantized.bn.bias.view(1, -1, 1, 1).expand_as(y))
    y.square().sum().backward()
    assert float(quantized.bn.weight.grad.abs().min()) > 0


def test_channels_below_the_smallest_gain_add_next_to_nothing() -> None:
    """What training computes for such a channel and what is deployed differ by |f| at most."""
    float_ = unfused(CONV2D)
    with torch.no_grad():
        float_.bn.weight.fill_(0.9 * SMALLEST_GAIN)
        float_.bn.running_var.fill_(1.0)
    quantized = float_.quantized(CONV2D, max_abs_quantizer(torch.ones(6, 4, 3, 3), 0))
    quantized.freeze_bn()
    x = CONV2D.input()
    reach = float(float_.layer(x).detach().abs().max() + float_.layer.bias.detach().abs().max())
    apart = quantized(x) - float_.eval()(x)
    assert float(apart.detach().abs().max()) <= SMALLEST_GAIN * reach


@all_layers
def test_frozen_statistics_train_the_deployed_form(case: Case) -> None:
    float_ = unfused(case, nn.ReLU6)
    quantized = float_.quantized(case, Off())
    quantized.freeze_bn()
    quantized.train()
    float_.bn.eval()
    assert quantized.training
    assert not quantized.bn.training
    same_step(float_, quantized, case.input())
    quantized.unfreeze_bn()
    float_.train()
    assert quantized.bn.training
    x = case.input().double()
    assert close(quantized(x), float_(x), 1e-10)
    same_statistics(float_.bn, quantized.bn, 1e-10)


def test_freezing_leaves_the_quantizers_mode_alone() -> None:
    quantized = unfused(CONV2D).quantized(CONV2D, Off())
    quantized.freeze_bn()
    for mode in (False, True):
        quantized.train(mode)
        assert quantized.weight_fake_quant.training is mode
        assert not quantized.bn.training


@pytest.mark.parametrize("frozen", [True, False])
@all_layers
def test_a_quantized_bias_is_the_deployed_bias(case: Case, frozen: bool) -> None:
    """In eval FQ_b((b-μ)f+β) is the bias; in training its error is added to BN's result."""
    float_ = unfused(case)
    f = gain(float_.bn)
    full = folded_bias(float_.bn, float_.layer.bias, f).detach()
    coarse = max_abs_quantizer(full, None, bits=4)
    error = (coarse(full) - full).view(-1, *[1] * (float_.layer.weight.dim() - 2))
    assert float(error.abs().max()) > 1e-3
    quantized = float_.quantized(case, Off(), coarse)
    x = case.input()
    if frozen:
        quantized.freeze_bn()
        float_.bn.eval()
    assert close(quantized(x), float_(x) + error)
    same_statistics(float_.bn, quantized.bn)
    full = folded_bias(float_.bn, float_.layer.bias, gain(float_.bn)).detach()
    error = (coarse(full) - full).view(-1, *[1] * (float_.layer.weight.dim() - 2))
    assert close(quantized.eval()(x), float_.eval()(x) + error)


@pytest.mark.parametrize("norm", [{"affine": False}, {"momentum": None}, {"eps": 0.1}])
def test_every_kind_of_batch_norm(norm: dict[str, object]) -> None:
    float_ = unfused(CONV2D, **norm)
    quantized = float_.quantized(CONV2D, Off())
    for _ in range(2):
        x = CONV2D.input()
        assert close(quantized(x), float_(x))
    same_statistics(float_.bn, quantized.bn)
    assert close(quantized.eval()(x), float_.eval()(x))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_without_a_batch_norm(activation: type | None) -> None:
    layer = CONV2D.make()
    quantizer = max_abs_quantizer(layer.weight, 0)
    quantized = qnn.FusedQatConv2d.from_float(copy.deepcopy(layer), quantizer)
    quantized.activation = activation and activation()
    with torch.no_grad():
        layer.weight.copy_(quantizer(layer.weight))
    expected = layer if activation is None else nn.Sequential(layer, activation())
    x = CONV2D.input()
    assert torch.equal(quantized(x), expected(x))


@all_layers
def test_fold_bn_keeps_every_bit_of_eval(case: Case) -> None:
    float_ = unfused(case, nn.ReLU)
    axis = channel_axis(float_.layer)
    quantized = float_.quantized(case, max_abs_quantizer(float_.layer.weight, axis)).eval()
    tied = quantized.weight
    before = tied.detach().clone()
    x = case.input()
    expected = quantized(x)
    quantized.fold_bn()
    assert quantized.bn is None
    assert torch.equal(quantized(x), expected)
    assert torch.equal(quantized.train()(x), expected)
    assert torch.equal(tied, before), "a tied weight must not be overwritten"
    quantized.fold_bn()
    assert torch.equal(quantized(x), expected)


def test_linear_with_batch_norm_refuses_sequences() -> None:
    quantized = qnn.FusedQatLinear(5, 6, bn=nn.BatchNorm1d(6), weight_quantizer=Off())
    for mode in (True, False):
        with pytest.raises(UnsupportedModelError, match="3-dimensional"):
            quantized.train(mode)(torch.randn(2, 6, 5))


def test_an_unfit_batch_norm_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="7 channels, but the layer computes 6"):
        qnn.FusedQatConv2d(4, 6, 3, bn=nn.BatchNorm2d(7), weight_quantizer=Off())
    with pytest.raises(UnsupportedModelError, match="no running statistics"):
        qnn.FusedQatConv2d(
            4, 6, 3, bn=nn.BatchNorm2d(6, track_running_stats=False), weight_quantizer=Off()
        )


def test_state_names() -> None:
    quantized = unfused(CONV2D, nn.ReLU).quantized(CONV2D, Off())
    assert set(quantized.state_dict()) == {
        "weight",
        "bias",
        *(f"bn.{n}" for n in unfused(CONV2D).bn.state_dict()),
    }


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent(clone: Callable[[nn.Module], nn.Module]) -> None:
    quantized = unfused(CONV2D, nn.ReLU).quantized(CONV2D, Off())
    quantized.freeze_bn()
    twin = clone(quantized)
    x = CONV2D.input()
    assert torch.equal(twin(x), quantized(x))
    assert twin.bn_frozen
    with torch.no_grad():
        twin.weight.zero_()
        twin.bn.running_mean.zero_()
    assert not torch.equal(twin(x), quantized(x))


def test_a_float_state_loads_with_renamed_batch_norm() -> None:
    float_ = unfused(CONV2D)
    quantized = unfused(CONV2D).quantized(CONV2D, Off())
    state = {k.removeprefix("layer."): v for k, v in float_.state_dict().items()}
    quantized.load_state_dict(state)
    x = CONV2D.input()
    assert close(quantized.eval()(x), float_.eval()(x))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("training", [True, False])
def test_compiles_without_graph_breaks(training: bool) -> None:
    float_ = unfused(CONV2D, nn.ReLU)
    axis = channel_axis(float_.layer)
    quantizer = max_abs_quantizer(float_.layer.weight.detach(), axis)
    eager = float_.quantized(CONV2D, quantizer).train(training)
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, backend="aot_eager", fullgraph=True)
    x = CONV2D.input()
    expected, got = eager(x), compiled(x)
    assert close(got, expected)
    for y in (expected, got):
        y.square().sum().backward()
    assert close(twin.weight.grad, eager.weight.grad)
    same_statistics(eager.bn, twin.bn)
