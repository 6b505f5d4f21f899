r"""Which layers cost most, found in one session.

After every quantizer q of the canonical model a switch chooses between its result and its input:

    x' = Where(off[q], x, FakeQuantize(x))

`off` is an input of the model, so one session tries all quantizers, one after the other. The noise
of q is that of the whole network less what is left without q; noises of several are about their
sum. A quantizer goes if no operator needs it any more: that of a weight with its layer, that of an
activation with all operators that read or write codes there. So the next layers to stay float are
those that take away most noise for their number and their time, alone or together with the
neighbours they share a quantizer with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.calibration.placing import Placed, Placing, names_of, weight_stem
from onnxq.calibration.trials.layer_cost import FloatTime
from onnxq.calibration.trials.trial import Trial
from onnxq.canonical.quantizers import QUANTIZERS, row_of
from onnxq.edit import constant, new_node, set_input, users, variable
from onnxq.graph import Model
from onnxq.operators.op_kind import weight_of
from onnxq.running.sessions import session

OFF = "onnxq.off"


@dataclass(frozen=True)
class FloatStep:
    """Layers that stay float next, together."""

    layers: tuple[str, ...]
    """Names that a rule can select them by."""
    share: float
    """The part of all noise that goes with them."""


def rank(
    placing: Placing,
    placed: Placed,
    trial: Trial,
    progress: Callable[[str], None] = lambda _: None,
    *,
    with_neighbours: bool = True,
) -> list[FloatStep]:
    """All quantized layers in the order in which they should become float.

    `with_neighbours` adds layers to a step that save time in float once their neighbours are.
    """
    noises = quantizer_noises(placed.model, trial, progress)
    needs = [
        (frozenset(map(id, place.asked_by)), sum(noises.get(t.name, 0.0) for t in place.tensors))
        for place in placing.places
    ]
    own: dict[int, float] = {}
    for node, weight in placing.weights:
        own[id(node)] = own.get(id(node), 0.0) + noises.get(weight.name, 0.0)
    names = {id(op): selector_of(op) for place in placing.places for op in place.asked_by}
    names |= {id(node): selector_of(node) for node, _ in placing.weights}
    return _greedy(own, needs, names, FloatTime(placing, trial.results[0][0]), with_neighbours)


def _greedy(
    own: dict[int, float],
    needs: list[tuple[frozenset[int], float]],
    names: dict[int, str],
    time: FloatTime,
    with_neighbours: bool = True,
) -> list[FloatStep]:
    """The best step first: by noise and time, with what became float before it."""
    left = set(own)
    waiting = [(set(ops), noise) for ops, noise in needs]
    floats: set[int] = set()
    # Of two layers that cost little the one with more noise goes first: each counts as a layer.
    unit = sum(time.products.values()) / max(len(own), 1) or 1.0
    steps = []
    while left:
        alone = {layer: own[layer] for layer in left}
        for ops, noise in waiting:
            if len(ops) == 1 and (layer := next(iter(ops))) in alone:
                alone[layer] += noise
        found = [(alone[layer], {layer}) for layer in left]
        for ops, noise in waiting:
            layers = ops & left
            if len(ops) > 1 and layers:
                found.append((noise + sum(alone[layer] for layer in layers), ops))
        prices = [max(unit * len(ops) + time.more(floats, ops), unit / 10) for _, ops in found]
        best = max(range(len(found)), key=lambda at: found[at][0] / prices[at])
        gain, chosen = found[best][0], set(found[best][1])
        waits = time.beside(chosen) & left if with_neighbours else set()
        while waits:
            layer = waits.pop()
            if time.more(floats | chosen, {layer}) < 0:
                chosen.add(layer)
                gain += alone.get(layer, 0.0)
                waits |= time.beside({layer}) & left - chosen
        steps.append(FloatStep(tuple(sorted(names[op] for op in chosen)), gain))
        floats |= chosen
        left -= chosen
        waiting = [(ops - chosen, noise) for ops, noise in waiting if ops - chosen]
    if waiting:  # operators without weights, between layers that are all float by now
        rest = set[int]().union(*(ops for ops, _ in waiting))
        gain = sum(noise for _, noise in waiting)
        steps.append(FloatStep(tuple(sorted(names[op] for op in rest)), gain))
    return steps


def quantizer_noises(
    model: Model, trial: Trial, progress: Callable[[str], None] = lambda _: None
) -> dict[str, float]:
    """The part of all noise at the outputs that comes from the quantizer of each tensor."""
    model = model.clone()
    rows = _with_switches(model)
    tried = session(model, "reference")
    whole = trial.noise(tried, more={OFF: np.zeros(len(rows), np.bool_)}).share
    found: dict[str, float] = {}
    for number, tensor in enumerate(rows):
        progress(f"measuring quantizer {number + 1} of {len(rows)}")
        off = np.arange(len(rows)) == number
        left = trial.noise(tried, more={OFF: off}).share
        found[tensor] = found.get(tensor, 0.0) + ((whole - left) / whole if whole > 0 else 0.0)
    return found


def _with_switches(model: Model) -> list[str]:
    """Put a switch after every quantizer of `model`; the tensors they round, in their order."""
    switches = variable(model, OFF, like=None)
    switches.name = OFF
    rows = []
    for node in model.nodes(*QUANTIZERS):
        rows.append(str(row_of(node).tensor))
        readers = users(node.outputs[0])
        outputs = [i for i, t in enumerate(model.graph.outputs) if t is node.outputs[0]]
        index = constant(model, f"{OFF}.{len(rows)}", np.array(len(rows) - 1, np.int64))
        is_off = variable(model, f"{OFF}.{len(rows)}.is", like=None)
        chosen = variable(model, f"{node.outputs[0].name}.chosen", like=node.outputs[0])
        home = node.owner
        new_node(model, "Gather", [switches, index], [is_off], name=f"{is_off.name}", graph=home)
        parts = [is_off, node.inputs[0], node.outputs[0]]
        new_node(model, "Where", parts, [chosen], name=chosen.name, graph=home)
        for reader, at in readers:
            set_input(reader, at, chosen)
        for at in outputs:
            model.graph.outputs[at] = chosen
    switches.dtype, switches.shape = np.dtype(np.bool_), [len(rows)]
    model.graph.inputs.append(switches)
    model.refresh()
    return rows


def selector_of(node: gs.Node) -> str:
    """The name to select a layer by: that of its module if its weight shows it."""
    weight = weight_of(node)
    if weight is not None and len(weight.outputs) == 1:
        stem = weight_stem(weight)
        if stem.endswith(".weight"):
            return stem.removesuffix(".weight")
    return names_of(node)[0]


__all__ = ["FloatStep", "quantizer_noises", "rank", "selector_of"]
