"""Recurrent layers in a file: one step after the other, so their number is that of the example.

torch does not see it: an axis of steps that should be dynamic is written as such, and the file then
fails on every other length. Whether an axis is one of steps is found by a run that is one longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import nn

from onnxq.errors import OnnxqError, UnsupportedModelError
from onnxq.quant.qparams import Array
from onnxq.running.sessions import reference
from torch_bridge.exporting.exporters import DynamicAxes
from torch_bridge.nn.recurrent import Recurrent


def unrolled_layers(model: nn.Module) -> list[str]:
    """The paths of layers that are written step by step."""
    return [path for path, module in model.named_modules() if isinstance(module, Recurrent)]


def note(layers: Sequence[str]) -> str:
    """What a reader of the file should know."""
    named = ", ".join(f"'{path}'" for path in layers)
    return f"{named}: written step by step, for sequences as long as that of the example"


def advice(layers: Sequence[str]) -> str:
    """The next step for a user whose file should take any length."""
    return (
        "leave the axis of steps out of dynamic_axes and pad sequences to one length, or "
        f"prepare with exclude=['{layers[0]}']: a float layer takes any length"
    )


def check_dynamic(
    file: Path, feeds: Mapping[str, Array], dynamic: DynamicAxes, layers: Sequence[str]
) -> None:
    """Refuse a file with an axis of any length that only runs with the length of the example."""
    session = reference(file)
    for name, longer in _one_longer(feeds, dynamic):
        try:
            session.run(longer)
        except OnnxqError as error:
            raise UnsupportedModelError(
                f"axis '{name}' cannot be dynamic: {note(layers)}", fix=advice(layers)
            ) from error


def _one_longer(
    feeds: Mapping[str, Array], dynamic: DynamicAxes
) -> Iterator[tuple[str, dict[str, Array]]]:
    """For each dynamic axis by name, the inputs with one more entry along it."""
    for name in dict.fromkeys(name for axes in dynamic.values() for name in axes.values()):
        longer = dict(feeds)
        for tensor in feeds:
            for axis in (a for a, each in dynamic.get(tensor, {}).items() if each == name):
                last = longer[tensor].take([-1], axis)
                longer[tensor] = np.concatenate([longer[tensor], last], axis)
        yield name, longer
