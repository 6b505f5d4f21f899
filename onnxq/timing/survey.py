"""What onnxruntime makes of a model, and where its time goes.

A session like the one that is measured writes its optimised graph and profiles some runs. Nodes
get names of their own first (`probe.name_for`): the profile and the optimised graph then name the
same kernels, and both lead back to the nodes of the file. Profiling adds about a microsecond to
each kernel, so the times serve for shares; latencies are measured without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from onnxq.disk import regular_file
from onnxq.errors import OnnxqError
from onnxq.graph import load
from onnxq.ort_fusion.prediction import predict
from onnxq.ort_fusion.probe import bodies, key_of, name_for, source_of
from onnxq.storage.function_form import all_nodes
from onnxq.timing.float_islands import FloatKernel, Kernel, float_islands
from onnxq.timing.kernel_kinds import INTEGER, Kind, kind_of
from onnxq.timing.profile import KernelTime

MOST_FLOAT_NODES = 20
"""Float operators that a survey lists, the most expensive ones."""


@dataclass(frozen=True)
class FloatNode:
    """A node kept in float beside kernels on codes."""

    node: str
    """Its name in the model, or its first output."""
    op: str
    """The operator that onnxruntime runs."""
    share: float
    """Its part of the time of all kernels."""
    conversions: float
    """The part of the conversions between codes and floats that it causes."""
    before: tuple[str, ...]
    """The operators whose codes it gets dequantized."""
    after: tuple[str, ...]
    """The operators that get its results quantized."""
    reason: str
    """Why it is not an integer operator, if that is known."""

    def to_json(self) -> dict[str, Any]:
        """The node as JSON."""
        return vars(self) | {"before": list(self.before), "after": list(self.after)}


@dataclass(frozen=True)
class Survey:
    """The kernels of a session: how many of each kind, and their parts of the time."""

    counts: Mapping[Kind, int]
    shares: Mapping[Kind, float]
    integer_operators: Mapping[str, int]
    islands: int
    float_nodes: tuple[FloatNode, ...]
    """The most expensive of the nodes in float islands."""
    float_nodes_in_all: int
    """The number of nodes in float islands."""

    @property
    def on_codes(self) -> int:
        """Kernels that compute on codes or move them."""
        return self.counts.get("integer", 0) + self.counts.get("moves", 0)

    @property
    def compared(self) -> int:
        """Kernels on codes and float ones."""
        return self.on_codes + self.counts.get("float", 0)

    def to_json(self) -> dict[str, Any]:
        """The survey as JSON."""
        return {
            "kernels": dict(self.counts),
            "time": dict(self.shares),
            "integer_operators": dict(self.integer_operators),
            "float_islands": self.islands,
            "float_nodes_in_islands": self.float_nodes_in_all,
            "float_nodes": [node.to_json() for node in self.float_nodes],
        }


Names = list[tuple[str, str]]
"""The name of each node by which users know it, and its first output."""


def rename_nodes(proto: onnx.ModelProto) -> Names:
    """Give every node a name of its own; returns the old ones."""
    names = []
    for number, node in enumerate(all_nodes(proto.graph.node)):
        names.append((str(node.name) or key_of(node), key_of(node)))
        node.name = name_for(number)
    # onnxruntime makes these names unique when it puts the body of a function in a call's place.
    for function in proto.functions:
        for at, node in enumerate(all_nodes(function.node)):
            node.name = f"{node.op_type}-{at}"
    return names


def survey(path: Path, optimized: Path, times: list[KernelTime], names: Names) -> Survey:
    """The survey of a model, given its optimised graph, its profile and its nodes' names."""
    proto = onnx.ModelProto()
    proto.ParseFromString(regular_file.read(optimized, regular_file.LARGEST))
    total = sum(time.microseconds for time in times) or 1.0
    kinds = {time.name: kind_of(time.op, time.inputs, time.outputs) for time in times}
    shares: Counter[Kind] = Counter()
    for time in times:
        shares[kinds[time.name]] += time.microseconds / total  # type: ignore[assignment]
    spent = {time.name: time.microseconds for time in times}
    unnamed = _kinds_by_operator(times, kinds)
    kernels = [
        Kernel(
            node,
            kinds.get(node.name) or unnamed.get(node.op_type) or kind_of(node.op_type, (), ()),
            spent.get(node.name, 0.0),
        )
        for node in all_nodes(proto.graph.node)
        if not any(bodies(node))
    ]
    constants = {t.name for graph in _graphs(proto.graph) for t in graph.initializer}
    islands = float_islands(kernels, constants)
    chosen = islands.kernels[:MOST_FLOAT_NODES]
    reasons = _reasons(path) if chosen else {}
    return Survey(
        Counter(kernel.kind for kernel in kernels),
        dict(shares),
        Counter(str(k.node.op_type) for k in kernels if k.node.op_type in INTEGER),
        islands.count,
        tuple(_float_node(found, total, names, reasons) for found in chosen),
        len(islands.kernels),
    )


def _kinds_by_operator(times: list[KernelTime], kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """The kind of each operator whose kernels are all of one kind.

    onnxruntime leaves some nodes that it adds without names, so the profile cannot tell them apart;
    nodes of a branch that was not taken are not in it at all.
    """
    found: dict[str, set[Kind]] = {}
    for time in times:
        found.setdefault(time.op, set()).add(kinds[time.name])
    return {op: next(iter(those)) for op, those in found.items() if len(those) == 1}


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in all_nodes(graph.node):
        yield from bodies(node)


def _float_node(
    found: FloatKernel, total: float, names: Names, reasons: Mapping[str, str]
) -> FloatNode:
    node = found.kernel.node
    number = source_of(node.name)
    # onnxruntime names most of what it adds after the node it comes from.
    name, key = names[number] if 0 <= number < len(names) else (key_of(node), key_of(node))
    return FloatNode(
        name,
        str(node.op_type),
        found.kernel.microseconds / total,
        found.conversions / total,
        tuple(dict.fromkeys(found.before)),
        tuple(dict.fromkeys(found.after)),
        reasons.get(key, ""),
    )


def _reasons(path: Path) -> dict[str, str]:
    """Why nodes stay in float, by their first outputs; none if onnxq cannot read the model."""
    try:
        found = predict(load(path)).nodes
    except OnnxqError:
        return {}
    return {key: prediction.reason for key, prediction in found.items()}
