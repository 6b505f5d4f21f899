"""Canonical models for tests: float graphs with FakeQuantize nodes at random places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from hypothesis import strategies as st

from onnxq import edit
from onnxq.canonical.fake_quantize import make
from onnxq.graph import Model, constants, from_proto
from onnxq.quant.qparams import GRAPH_OUTPUT, QParams, Reader
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions
from tests.models.strategies import graphs
from tests.models.zoo import inputs

GRIDS = (
    ("int8", 0.05, 0, None, None),
    ("int8", 0.03, 0, -127, 127),
    ("uint8", 0.02, 3, None, None),
    ("uint8", 0.1, 128, 0, 200),
    ("int4", 0.3, 1, None, None),
    ("int16", 0.0001, 0, None, None),
)
"""type, scale, zero point, lowest and highest code"""


def grid(tensor: str, number: int = 0) -> QParams:
    """One of a few per-tensor grids."""
    kind, scale, zero_point, lo, hi = GRIDS[number]
    return QParams(tensor, qtype(kind), np.asarray(scale), np.asarray(zero_point), lo=lo, hi=hi)


def put(
    model: Model, tensor: gs.Tensor, params: QParams, readers: list[Reader] | None = None
) -> gs.Tensor | None:
    """Put a FakeQuantize behind `tensor`, for all uses or some; what it makes."""
    model.refresh()
    made = edit.insert(model, tensor, lambda x, y, graph: make(model, x, y, params, graph), readers)
    model.refresh()
    return made


def expose(model: Model, tensor: gs.Tensor) -> None:
    """Let a tensor of the main graph be a graph output as well."""
    if tensor.dtype is None:
        tensor.dtype = np.dtype(np.float32)
    model.graph.outputs.append(tensor)
    model.refresh()


def assert_same_outputs(one: Model, other: Model) -> None:
    """Both compute the same outputs, bit for bit, for seeded inputs in the reference session."""
    feeds = inputs(one.to_proto(), 0)
    first, second = (sessions.reference(m).run(feeds) for m in (one, other))
    assert list(first) == list(second)
    for name, value in first.items():
        assert value.tobytes() == second[name].tobytes(), name


class Canonical(NamedTuple):
    """A float graph, and the same with quantizers."""

    proto: onnx.ModelProto
    model: Model


@st.composite
def canonical_models(draw: st.DrawFn) -> Canonical:
    """A random float graph with quantizers on random tensors and readers.

    They may stand on activations, weights, graph inputs and outputs, serve all readers or some,
    follow one another, stand inside bodies, and be graph outputs themselves.
    """
    proto = draw(graphs())
    model = from_proto(proto)
    for _ in range(draw(st.integers(1, 8))):
        place = draw(st.sampled_from(_places(model)))
        uses = [edit.read_by(n, i) for n, i in edit.users(place)]
        uses += [GRAPH_OUTPUT] * model.is_output(place)
        some = None
        if len(uses) > 1 and draw(st.integers(0, 3)):
            some = draw(st.lists(st.sampled_from(uses), min_size=1, unique=True))
        made = put(model, place, _params(draw, place), some)
        if made is None or model.is_output(made):
            continue
        if made.inputs[0].owner is model.graph and draw(st.integers(0, 3)) == 0:
            expose(model, made)
    return Canonical(proto, model)


def _places(model: Model) -> list[gs.Tensor]:
    """Float tensors that are read: data, weights, and results of quantizers already there."""
    found: dict[int, gs.Tensor] = {}
    for node in model.nodes():
        if node.op == "Constant":
            continue
        data = 0 if node.op == "If" else 2 if node.op in ("Add", "Conv", "Concat") else 1
        found.update((id(t), t) for t in (*node.inputs[:data], *node.outputs))
    return list(found.values())


def _params(draw: st.DrawFn, place: gs.Tensor) -> QParams:
    value = constants.array(place)
    if value is not None and value.ndim and draw(st.booleans()):
        channels = value.shape[0]
        scale = np.linspace(0.01, 0.03, channels, dtype=np.float32)
        return QParams(place.name, qtype("int8"), scale, np.zeros(channels, np.int64), axis=0)
    return grid(place.name, draw(st.integers(0, len(GRIDS) - 1)))
