"""LSTM, GRU and RNN as layers that can be quantized, in loops over the sequence.

torch's own modules compute all products in one function, in which quantizers cannot be inserted.
Here every direction of every layer is a cell (`recurrent_cell`): the inputs of all steps are
multiplied at once, the states step by step. Training takes sequences of any length. An exported
file contains the steps one after the other, and so takes the length that it was exported with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from onnxq.errors import UnsupportedModelError
from torch_bridge.nn.children import places
from torch_bridge.nn.hooks import keep_hooks
from torch_bridge.nn.plain_type import plain_type
from torch_bridge.nn.qat import QatLayer
from torch_bridge.nn.recurrent_cell import Gates, RecurrentCell, State, linear

LAYERS = (nn.LSTM, nn.GRU, nn.RNN)
CELLS = (nn.LSTMCell, nn.GRUCell, nn.RNNCell)
_STEPS = "; files contain its steps one after the other, for sequences as long as in the export"


class Recurrent(nn.Module):
    """nn.LSTM, nn.GRU or nn.RNN in separate layers."""

    def __init__(self, source: nn.RNNBase) -> None:
        super().__init__()
        self.stands_for = type(source)
        self.mode = source.mode
        self.input_size, self.hidden_size = source.input_size, source.hidden_size
        self.num_layers, self.proj_size = source.num_layers, source.proj_size
        self.batch_first, self.bidirectional = source.batch_first, source.bidirectional
        self.dropout, self.bias = source.dropout, source.bias
        self.cells = nn.ModuleList(_cells(source))
        self.train(source.training)

    def flatten_parameters(self) -> None:
        """Nothing: there is no one block of memory to keep the parameters in."""

    def first_layers(self, argument: int) -> list[nn.Module]:
        """The layers that read an argument of `forward` as it is."""
        return [] if argument else [c.get_submodule("input") for c in self._cells_of(0)]

    def _cells_of(self, layer: int) -> list[nn.Module]:
        ways = 1 + self.bidirectional
        return [self.cells[layer * ways + way] for way in range(ways)]

    def share_quantizers(self) -> None:
        """Let both directions of a layer read one quantized input."""
        for layer in range(self.num_layers):
            first, *others = (cell.get_submodule("input") for cell in self._cells_of(layer))
            for other in others:
                if isinstance(first, QatLayer) and isinstance(other, QatLayer):
                    other.input_fake_quant = first.input_fake_quant

    def result_shapes(
        self, input: Tensor, hx: Tensor | State | None = None
    ) -> tuple[Tensor, Tensor | State]:
        """Tensors of the shapes of a result, without a loop over the length of the sequence."""
        first, *others = input.shape[:-1]
        batch = [first if self.batch_first else others[0]] if others else []
        ways = 1 + self.bidirectional
        outputs = self.proj_size or self.hidden_size
        sizes = (outputs, self.hidden_size) if self.mode == "LSTM" else (outputs,)
        last = [input.new_empty(self.num_layers * ways, *batch, size) for size in sizes]
        made = input.new_empty(first, *others, ways * outputs)
        return made, tuple(last) if self.mode == "LSTM" else last[0]

    def forward(
        self, input: Tensor, hx: Tensor | State | None = None
    ) -> tuple[Tensor, Tensor | State]:
        """The same as the layer of torch, of padded sequences."""
        if isinstance(input, PackedSequence):
            raise UnsupportedModelError(
                f"{self.stands_for.__name__} got a PackedSequence, whose steps have batches of "
                "different sizes",
                fix="pass padded sequences and ignore the results after their ends, or prepare the "
                "model with packed example inputs: the layer then stays float",
            )
        time = 1 if self.batch_first and input.dim() == 3 else 0
        states = () if hx is None else hx if isinstance(hx, tuple) else (hx,)
        ways = 1 + self.bidirectional
        y, last = input, []
        for layer in range(self.num_layers):
            if layer:
                y = F.dropout(y, self.dropout, self.training)
            results = []
            for way in range(ways):
                at = layer * ways + way
                start = tuple(state[at] for state in states) or None
                result, end = self._run(self.cells[at], y, start, time, backwards=way == 1)
                results.append(result)
                last.append(end)
            y = results[0] if ways == 1 else torch.cat(results, -1)
        ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
        return y, ends if self.mode == "LSTM" else ends[0]

    def _run(
        self, cell: nn.Module, x: Tensor, state: State | None, time: int, *, backwards: bool
    ) -> tuple[Tensor, State]:
        """The results of all steps, in the order of the sequence, and the state after the last."""
        assert isinstance(cell, Gates)
        step, state = cell.step(), cell.start(state)
        inputs = cell.input(x).unbind(time)
        results = []
        for each in reversed(inputs) if backwards else inputs:
            state = step(each, state)
            results.append(state[0])
        assert state is not None
        return torch.stack(results[::-1] if backwards else results, time), state


def _cells(source: nn.RNNBase) -> Iterator[Gates]:
    for layer in range(source.num_layers):
        for way in ("", "_reverse")[: 1 + source.bidirectional]:
            parts = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
            own = {part: getattr(source, f"{part}_l{layer}{way}", None) for part in parts}
            made = (linear(own[f"weight_{k}"], own[f"bias_{k}"]) for k in ("ih", "hh"))
            cell = Gates(source.mode, *made)
            if source.proj_size:
                cell.projection = linear(getattr(source, f"weight_hr_l{layer}{way}"), None)
            yield cell


def is_recurrent(module: nn.Module) -> bool:
    """Whether `module` is a recurrent layer or cell of torch, or derived from one."""
    return isinstance(module, LAYERS + CELLS)


@dataclass(frozen=True)
class Expansion:
    """The recurrent layers and cells of a model, and what became of them."""

    replaced: dict[str, nn.Module] = field(default_factory=dict)
    """Layers of torch that are separate layers now, by path."""
    left: dict[str, str] = field(default_factory=dict)
    """Why others stay as they are, by path."""

    def settle(self, model: nn.Module) -> None:
        """Put those back of which no layer was quantized: targets have them in float as one op.

        In the others, both directions of a layer read one quantized input.
        """
        modules = dict(model.named_modules(remove_duplicate=False))
        for path, source in self.replaced.items():
            made = modules.get(path)
            if path and made is not None and not _is_quantized(made):
                parent, _, name = path.rpartition(".")
                setattr(modules[parent], name, source.train(made.training))
            elif isinstance(made, Recurrent):
                made.share_quantizers()

    def notes(self, model: nn.Module) -> Iterator[str]:
        """A line about each in the prepared model."""
        for path, source in self.replaced.items():
            name = f"{path or 'the model itself'}: {type(source).__name__}"
            if _is_quantized(model.get_submodule(path)):
                steps = _STEPS if isinstance(source, nn.RNNBase) else ""
                yield f"{name} as quantized layers and float gates{steps}"
            else:
                yield f"{name} as one float operator, none of its layers is quantized"


def _is_quantized(module: nn.Module) -> bool:
    return any(isinstance(each, QatLayer) for each in module.modules())


def packed_layers(model: nn.Module, run: Callable[[nn.Module], Any]) -> set[int]:
    """The ids of recurrent layers that get packed sequences when `run` calls the model."""
    found: set[int] = set()

    def watch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if any(isinstance(value, PackedSequence) for value in (*args, *kwargs.values())):
            found.add(id(module))

    layers = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    hooks = [m.register_forward_pre_hook(watch, with_kwargs=True) for m in layers]
    if layers:
        run(model)
    for hook in hooks:
        hook.remove()
    return found


def expand_recurrent(model: nn.Module, packed: Collection[int]) -> tuple[nn.Module, Expansion]:
    """`model` with every recurrent layer and cell replaced, but the layers with ids `packed`."""
    if is_recurrent(model):
        holder = nn.ModuleList([model])
        _, found = expand_recurrent(holder, packed)
        if found.left:
            return model, Expansion(left={"": found.left["0"]})
        return holder[0], Expansion({"": model})
    replaced: dict[str, nn.Module] = {}
    left: dict[str, str] = {}
    made: dict[int, nn.Module] = {}
    for place in places(model):
        child = place.child
        if not is_recurrent(child):
            continue
        if reason := _objection(child, packed):
            left[place.path] = reason
            continue
        if id(child) not in made:
            made[id(child)] = _apart(child)
            keep_hooks(child, made[id(child)])
        place.put(made[id(child)])
        replaced[place.path] = child
    return model, Expansion(replaced, left)


def _apart(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.RNNBase):
        return Recurrent(module)
    assert isinstance(module, nn.RNNCellBase)
    return RecurrentCell(module)


def _objection(module: nn.Module, packed: Collection[int]) -> str:
    if id(module) in packed:
        return "it is called with packed sequences; pad them to have it quantized"
    if plain_type(module, LAYERS + CELLS) is None:
        return f"{type(module).__name__} computes something else than torch's layer"
    own = {name for name, _ in module.named_parameters(recurse=False)}
    computed = any(name.startswith("weight_") for name in vars(module)) or list(module.children())
    if computed or not any(name.startswith("weight_hh") for name in own):
        return "a weight is computed by a hook or parametrization"
    return ""
