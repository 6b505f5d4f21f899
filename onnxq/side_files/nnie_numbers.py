"""Which inputs of layers the numbers in NNIE's parameter file are for.

A list may be shorter than the inputs of its layer, and does not specify which of them it is for.
On the chip a tensor has one number, so it is for the inputs that have the same number in other
layers. If none has, or several could be meant, it cannot be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_graphsurgeon as gs

from onnxq.graph.constants import is_constant
from onnxq.side_files.nnie_inputs import writable_inputs

Assigned = tuple[gs.Node, dict[int, float]]
"""A layer, and the number of each of its inputs that has one."""


def assigned(
    numbers: Iterable[tuple[gs.Node, Sequence[float]]],
    tensor: Callable[[gs.Tensor], gs.Tensor] = lambda t: t,
) -> tuple[list[Assigned], list[gs.Node]]:
    """The numbers by input, and the layers whose numbers cannot be assigned to inputs.

    `tensor` gives the tensor that an input is known by, for graphs that still have quantizers.
    """
    found: list[Assigned] = []
    known: dict[str, set[float]] = {}
    partial = []

    def assign(node: gs.Node, inputs: list[int], values: Sequence[float]) -> None:
        given = dict(zip(inputs, values, strict=True))
        found.append((node, given))
        for index, value in given.items():
            known.setdefault(tensor(node.inputs[index]).name, set()).add(value)

    for node, values in numbers:
        inputs = writable_inputs(node)
        computed = [i for i in inputs if not is_constant(tensor(node.inputs[i]))]
        if len(values) in (len(computed), len(inputs)):
            assign(node, computed if len(values) == len(computed) else inputs, values)
        else:
            partial.append((node, computed, values))
    unclear = []
    for node, computed, values in partial:
        sets = {i: known.get(tensor(node.inputs[i]).name, set()) for i in computed}
        first = _matching(computed, values, sets)
        last = _matching(computed[::-1], values[::-1], sets)
        if first is None or last is None or first != last[::-1]:
            unclear.append(node)
        else:
            assign(node, first, values)
    return found, unclear


def _matching(
    inputs: list[int], values: Sequence[float], known: dict[int, set[float]]
) -> list[int] | None:
    """The first inputs in that order with these numbers in other layers; None if too few."""
    chosen: list[int] = []
    for index in inputs:
        if len(chosen) < len(values) and values[len(chosen)] in known[index]:
            chosen.append(index)
    return chosen if len(chosen) == len(values) else None


__all__ = ["Assigned", "assigned"]
