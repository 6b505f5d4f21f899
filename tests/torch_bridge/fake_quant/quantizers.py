"""Quantizers under test, tensors that hurt them, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.quant.qtypes import qtype

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic.spec import QuantizerSpec  # noqa: E402
from torch_bridge.fake_quant import FakeQuantize, algorithm  # noqa: E402


class Given(torch.nn.Module):
    """An observer that answers what it was given."""

    def __init__(self, scale: Any, zero_point: Any = 0) -> None:
        super().__init__()
        self.scale = torch.as_tensor(scale, dtype=torch.float32)
        self.zero_point = torch.as_tensor(zero_point).to(torch.int32).expand(self.scale.shape)
        self.name = ""
        self.only_zeros = self.negative = False
        self.seen: list[Any] = []

    @property
    def ready(self) -> bool:
        return any(x.numel() for x in self.seen)

    def forward(self, x: Any) -> None:
        self.seen.append(x)

    def calculate(self) -> tuple[Any, Any]:
        return self.scale, self.zero_point


def spec(kind: str = "int8", **fields: Any) -> QuantizerSpec:
    """A symmetric spec over the whole type, or with other fields."""
    of = qtype(kind)
    return QuantizerSpec(
        **{"qtype": of, "lo": of.lo, "hi": of.hi, "symmetric": True, "axis": None, **fields}
    )


def make(
    name: str, of: QuantizerSpec, scale: Any, zero_point: Any = 0, **options: Any
) -> FakeQuantize:
    """A quantizer that quantizes on this grid."""
    made = algorithm(name)(of, Given(scale, zero_point), "net.act", **options)
    made.set_range(made.observer.scale, made.observer.zero_point)
    made.quantizing = True
    return made


def hard_values(scale: float, *shape: int) -> Any:
    """Values of which a 4-bit grid clips many; the first are whole and half steps, and zeros."""
    x = torch.randn(shape or (400,)) * 12 * scale
    flat = x.view(-1)
    steps = torch.arange(-40, 41) / 2 * scale
    flat[: len(steps)] = steps
    flat[len(steps)] = -0.0
    return x


def gradients(quantizer: FakeQuantize, x: Any, dy: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """dx, and the gradients of the parameters, in float64."""
    x = x.detach().requires_grad_()
    named = dict(quantizer.named_parameters())
    y = quantizer(x)
    grads = torch.autograd.grad(y, [x, *named.values()], dy, allow_unused=True)
    dx, *rest = (None if g is None else g.double().numpy() for g in grads)
    return dx, dict(zip(named, rest, strict=True))


def close(got: Any, want: Any, terms: Any) -> bool:
    """Whether a sum is right, but for float32 rounding of its terms."""
    return bool(np.all(np.abs(got - want) <= 1e-5 * np.abs(terms).sum() + 1e-12))
