"""The network beneath the quantizers, as the page draws it: operators and what they read.

Quantizers are no nodes of it: they are what a tensor is read as. Nodes inside the bodies of If and
Loop are not drawn, their holder is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import Row
from onnxq.edit import op_name
from onnxq.graph import Model
from onnxq.operators.op_kind import weight_of
from onnxq.quant.qparams import QParams
from onnxq.reporting.coverage import Fate, first_output
from onnxq.reporting.layered_layout import Place, layout
from onnxq.reporting.measured import LayerError
from onnxq.reporting.sequence import in_sequence

_LEAST = -60.0
"""A result with less than so many dB is nothing but noise."""


@dataclass(frozen=True)
class Layer:
    """One operator of the network."""

    name: str
    op: str
    output: str
    """Its first output."""
    shape: str
    """The type and shape of that output, as far as they are known."""
    weight: str
    """The name of its weight, '' if it has none."""
    parameters: int
    """The number of values in its constants."""
    quantizer: str
    """The type that its output is rounded to, '' if it stays float."""
    fate: Fate
    error: LayerError | None
    """How far its output is from that of the trusted model; None if it was not compared."""
    added: float | None
    """The share of noise in its output beyond that in its worst input: what this layer adds."""
    reads: tuple[str, ...]
    """The activations it reads."""
    producers: tuple[int, ...]
    """The numbers of the layers that make them."""
    place: Place

    @property
    def sqnr(self) -> float | None:
        """The signal-to-noise ratio of its output in dB; None if it was not compared."""
        return None if self.error is None else self.error.sqnr

    def to_json(self) -> dict[str, Any]:
        """A JSON object; infinities become None."""
        return {
            "name": self.name,
            "op": self.op,
            "output": self.output,
            "shape": self.shape,
            "weight": self.weight,
            "parameters": self.parameters,
            "quantizer": self.quantizer,
            **self.fate.to_json(),
            "error": None if self.error is None else self.error.to_json(),
            "added": self.added,
            "reads": list(self.reads),
        }


def network(
    plain: Model,
    rows: Mapping[str, Row],
    fates: Mapping[str, Fate],
    errors: Mapping[str, LayerError],
) -> tuple[Layer, ...]:
    """The operators of the main graph, each after those it reads from.

    `rows` are the quantizers of activations, by tensor; `fates` go by first outputs.
    """
    nodes = [n for n in in_sequence(plain) if n.owner is plain.graph]
    number = {str(t.name): at for at, node in enumerate(nodes) for t in node.outputs if t.name}
    producers = [
        tuple(dict.fromkeys(number[t.name] for t in node.inputs if t.name in number))
        for node in nodes
    ]
    places = layout(len(nodes), ((a, b) for b, found in enumerate(producers) for a in found))
    noise: list[float] = []
    layers: list[Layer] = []
    for at, node in enumerate(nodes):
        output = first_output(node)
        error = errors.get(output)
        before = max((noise[p] for p in producers[at]), default=0.0)
        noise.append(before if error is None else 10 ** (-max(error.sqnr, _LEAST) / 10))
        weight = weight_of(node)
        row = rows.get(output)
        layers.append(
            Layer(
                name=str(node.name) or output,
                op=op_name(node),
                output=output,
                shape=_shape(node),
                weight="" if weight is None else str(weight.name),
                parameters=sum(_size(t) for t in node.inputs),
                quantizer="" if row is None else _kind(row),
                fate=fates[output],
                error=error,
                added=None if error is None else max(0.0, noise[at] - before),
                reads=tuple(str(t.name) for t in node.inputs if t.name and not _size(t)),
                producers=producers[at],
                place=places[at],
            )
        )
    return tuple(layers)


def _kind(row: Row) -> str:
    return row.qtype.name if isinstance(row, QParams) else "logarithmic"


def _shape(node: gs.Node) -> str:
    tensor = next((t for t in node.outputs if t.name), None)
    if tensor is None or tensor.dtype is None:
        return ""
    kind = str(np.dtype(tensor.dtype))
    if tensor.shape is None:
        return kind
    return f"{kind}[{', '.join('?' if d is None else str(d) for d in tensor.shape)}]"


def _size(tensor: gs.Tensor) -> int:
    return math.prod(tensor.shape) if isinstance(tensor, gs.Constant) else 0


__all__ = ["Layer", "network"]
