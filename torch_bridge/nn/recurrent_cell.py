"""One step of a recurrent layer, as two layers and element-wise functions between them.

    x', h'  = W_x x + b_x, W_h h + b_h                      each split into gates

    LSTM    i, f, g, o = x' + h'
            c   = sigmoid(f) c + sigmoid(i) tanh(g)
            h   = sigmoid(o) tanh(c)                        or P h, with a projection
    GRU     r, z    = sigmoid(x'_rz + h'_rz)
            n       = tanh(x'_n + r h'_n)
            h       = n + z (h - n)
    RNN     h   = tanh(x' + h')                             or relu

The gates of a weight are rows of one matrix, so scales per channel are scales per gate and unit.
Functions between the products are computed in float. A state h is rounded where it is made, so that
all who read it see the same codes. One that is not given is zero, which is on every grid: its
product is the bias.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torch_bridge.nn.qat import QatLayer

State = tuple[Tensor, ...]
"""What a step hands on: (h,), or (h, c) of an LSTM."""
Step = Callable[[Tensor, State | None], State]
"""From the product with an input, and the state before, to the state after."""


class Gates(nn.Module):
    """The layers of one cell: `input`, `hidden`, and `projection` if it has one."""

    def __init__(self, mode: str, input: nn.Linear, hidden: nn.Linear) -> None:
        super().__init__()
        self.mode = mode
        self.input = input
        self.hidden = hidden
        self.projection: nn.Linear | None = None

    def step(self) -> Step:
        """The step. Weights are quantized once, not in every step."""
        next_state = _STEPS[self.mode]
        weight, bias = _parameters(self.hidden)
        of_projection = None if self.projection is None else _parameters(self.projection)

        def compute(x: Tensor, state: State | None) -> State:
            hidden = bias if state is None else F.linear(state[0], weight, bias)
            h, *others = next_state(x, hidden, state)
            if of_projection is not None:
                h = F.linear(_rounded(self.projection, h), *of_projection)
            return _rounded(self.hidden, h), *others

        return compute

    def start(self, state: State | None) -> State | None:
        """A state from outside, rounded as those of the steps are."""
        return None if state is None else (_rounded(self.hidden, state[0]), *state[1:])


class RecurrentCell(Gates):
    """nn.LSTMCell, nn.GRUCell or nn.RNNCell in separate layers."""

    def __init__(self, source: nn.RNNCellBase) -> None:
        names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        weights = [getattr(source, name) for name in names]
        super().__init__(_mode(source), linear(*weights[:2]), linear(*weights[2:]))
        self.stands_for = type(source)
        self.input_size, self.hidden_size = source.input_size, source.hidden_size
        self.train(source.training)

    def forward(self, input: Tensor, hx: Tensor | tuple[Tensor, Tensor] | None = None) -> Any:
        """The same as the cell of torch."""
        state = None if hx is None else hx if isinstance(hx, tuple) else (hx,)
        made = self.step()(self.input(input), self.start(state))
        return made if self.mode == "LSTM" else made[0]


def linear(weight: Any, bias: Any) -> nn.Linear:
    """A layer that holds these parameters themselves; `bias` may be None."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    made.weight = weight
    if bias is not None:
        made.bias = bias
    return made


def _mode(cell: nn.RNNCellBase) -> str:
    kinds = {nn.LSTMCell: "LSTM", nn.GRUCell: "GRU"}
    named = next((mode for kind, mode in kinds.items() if isinstance(cell, kind)), None)
    return named or f"RNN_{str(getattr(cell, 'nonlinearity', '')).upper()}"


def _parameters(layer: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weight and bias, quantized if the layer does that."""
    if not isinstance(layer, QatLayer):
        return layer.weight, layer.bias
    return layer.weight_fake_quant(layer.weight), layer.quantize_bias(layer.bias)


def _rounded(layer: nn.Module | None, x: Tensor) -> Tensor:
    """`x` as `layer` reads it."""
    return layer.quantize_input(x) if isinstance(layer, QatLayer) else x


def _lstm(x: Tensor, h: Tensor | None, state: State | None) -> State:
    i, f, g, o = (x if h is None else x + h).chunk(4, -1)
    c = torch.sigmoid(i) * torch.tanh(g)
    if state is not None:
        c = torch.sigmoid(f) * state[1] + c
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(x: Tensor, h: Tensor | None, state: State | None) -> State:
    gates = x.shape[-1] // 3 * 2
    r, z = (x if h is None else x + h)[..., :gates].chunk(2, -1)
    n, z = x[..., gates:], torch.sigmoid(z)
    n = torch.tanh(n if h is None else n + torch.sigmoid(r) * h[..., gates:])
    return (n - z * n if state is None else n + z * (state[0] - n),)


def _plain(function: Callable[[Tensor], Tensor]) -> Callable[..., State]:
    return lambda x, h, _: (function(x if h is None else x + h),)


_STEPS: dict[str, Callable[[Tensor, Tensor | None, State | None], State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": _plain(torch.tanh),
    "RNN_RELU": _plain(torch.relu),
}
