"""Checks that layers of users compute with the weights that they are given.

A quantized layer y = f(x, W, b) trains and deploys f(x, FQ(W), FQ_b(b)), so f must read W and b
from its arguments. A batch norm is folded into f, which must be linear in them: with a gain g and a
shift c per output channel,

    f(x, W·g, b·g + c) = g·f(x, W, b) + c

While a model runs, each layer whose code is not torch_bridge's own is called again on what it read:
in that way where a batch norm is folded into it, and with another weight and bias otherwise. A
fresh batch norm has g = 1 and c = 0, so comparing results with those of the float model does not
show it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedModelError
from torch_bridge.nn.fused_qat import FusedQatLayer
from torch_bridge.nn.layout import scale_channels, weight_layout
from torch_bridge.nn.qat import QatLayer

TOLERANCE = 1e-3
"""Rounding moves float32 results by some 1e-6; another function by far more than this."""


@contextlib.contextmanager
def checked_weights(model: nn.Module) -> Iterator[None]:
    """While `model` runs, raise at the first layer that ignores its weights, or bends them."""
    hooks = [
        layer.register_forward_hook(_check_at(path), with_kwargs=True)
        for path, layer in model.named_modules()
        if isinstance(layer, QatLayer) and not _is_ours(layer)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _is_ours(layer: QatLayer) -> bool:
    code = getattr(type(layer).apply_weights, "__module__", "")
    return code.startswith("torch_bridge.")


def _check_at(path: str) -> Callable[..., None]:
    @torch.no_grad()
    def check(layer: QatLayer, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> None:
        options = dict(kwargs)
        x, *rest = args or (options.pop("input"),)

        def run(weight: Tensor, bias: Tensor | None) -> Tensor:
            return layer.apply_weights(x, weight, bias, *rest, **options)

        weight, bias = layer.weight, getattr(layer, "bias", None)
        y = run(weight, bias)
        if not isinstance(y, Tensor) or not torch.equal(run(weight, bias), y):
            return  # it draws random numbers
        if isinstance(layer, FusedQatLayer) and layer.bn is not None:
            _check_linear(path, layer, run, y)
        elif x.any() and y.any():
            _check_read(path, layer, run, y)

    return check


def _check_linear(path: str, layer: FusedQatLayer, run: Callable[..., Tensor], y: Tensor) -> None:
    assert layer.bn is not None
    count = layer.bn.num_features
    gain = torch.linspace(0.5, 2.0, count).to(layer.weight)
    shift = torch.linspace(1.0, -1.0, count).to(layer.weight) * (y.abs().max() or 1.0)
    bias = shift if layer.bias is None else layer.bias * gain + shift
    found = run(scale_channels(layer.weight, gain, weight_layout(layer)), bias)
    view = (1, -1, *[1] * (y.dim() - 2))
    expected = y * gain.view(view) + shift.view(view)
    apart = (found - expected).abs().max() / (expected.abs().max() or 1.0)
    if not apart <= max(TOLERANCE, torch.finfo(y.dtype).eps ** 0.5):
        kind = type(layer).__name__
        raise UnsupportedModelError(
            f"{_words(path, layer)} is not linear in its weight and bias, so its batch norm cannot "
            "be folded into them",
            fix=f"let apply_weights of {kind} be linear in both, so that apply_weights(x, g * "
            "weight, g * bias + c) is g * apply_weights(x, weight, bias) + c for every output "
            "channel; or take the batch norm out of the pattern",
        )


def _check_read(path: str, layer: QatLayer, run: Callable[..., Tensor], y: Tensor) -> None:
    weight, bias = layer.weight, getattr(layer, "bias", None)
    other = weight * torch.linspace(0.5, 2.0, weight.numel()).to(weight).view(weight.shape)
    ignored = ["weight"] if weight.any() and torch.equal(run(other, bias), y) else []
    if bias is not None and torch.equal(run(weight, bias + 1), y):
        ignored.append("bias")
    if ignored:
        names = " and ".join(ignored)
        kind = type(layer).__name__
        raise UnsupportedModelError(
            f"{_words(path, layer)} computes the same with any other {names}, so the quantized "
            f"{names} would be ignored",
            fix=f"let apply_weights(x, weight, bias) of {kind} compute with the {names} given, not "
            f"with {' and '.join(f'self.{name}' for name in ignored)}",
        )


def _words(path: str, layer: QatLayer) -> str:
    pattern = getattr(layer, "fused_pattern", "")
    made = f", made by the pattern '{pattern}'" if pattern else ""
    return f"'{path}' (a {type(layer).__name__}{made})"
