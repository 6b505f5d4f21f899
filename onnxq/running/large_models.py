"""Sessions of models with so many weights that no session may copy them all.

onnxruntime maps external data, and a weight that is read where it lies takes no memory. But by
default it copies all weights at once:

* kernels pack weights anew when a session opens, and the packed copies stay;
* whatever does not depend on layers before, as the DequantizeLinear of a weight, may run first, so
  that the float weights of the whole network wait in memory for their layers;
* memory that was needed once is kept for the next run;
* the optimiser makes new weights (uint8 of int8, other layouts), which are not in a file.

A large model is therefore run without packing, and its nodes in the order of the file, in which
nodes stand right before their readers. What onnxruntime makes of a graph, by optimising it or
by inlining functions, has another order: it is first written to a file, and put in order there.
Results are the same but for rounding: a kernel may need packed weights, and another one runs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

from onnxq.running.ort_session import start
from onnxq.running.temporary_weights import INLINE
from onnxq.storage.model_files import read_model
from onnxq.storage.node_order import ordered, reads

LARGE = 1 << 25
"""Weights in files from which on a model is large, 128 MiB in float32: fewer are copied sooner than
they are read in place. Codes of 8 bits count as much, since sessions make float weights of them."""


def is_large(proto: ModelProto) -> bool:
    """Whether the weights of a model that lie in files are too many to be copied."""
    stored = (t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL)
    return sum(math.prod(tensor.dims) for tensor in stored) >= LARGE


def lean(options: Any) -> Any:
    """The options of a session, which from now on leaves weights where they are."""
    import onnxruntime as ort

    options.add_session_config_entry("session.disable_prepacking", "1")
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED  # that of the file
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    return options


def in_running_order(proto: ModelProto) -> ModelProto:
    """A copy in which a node stands right before its first reader.

    Of the inputs of a node the one that most nodes lead to comes first: it is the one from the
    layers before, and the weight can wait.
    """
    nodes = ordered(proto.graph)
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    needs = [{makers[name] for name in reads(node) if name in makers} for node in nodes]
    depths: list[int] = []
    for before in needs:
        depths.append(1 + max((depths[at] for at in before), default=0))
    read = set().union(*needs)
    made = ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:]
    placed: set[int] = set()
    waiting = [at for at in reversed(range(len(nodes))) if at not in read]
    while waiting:
        at = waiting[-1]
        needed = needs[at] - placed
        if at in placed or not needed:
            waiting.pop()
        if at not in placed and not needed:
            placed.add(at)
            made.graph.node.append(nodes[at])
        elif at not in placed:
            waiting += sorted(needed, key=lambda each: (depths[each], -each))
    return made


def can_be_written(proto: ModelProto) -> bool:
    """Whether onnxruntime can read what it makes of a graph.

    Not if there are bodies: it gives new tensors in them the same names.
    """
    attributes = (a for node in proto.graph.node for a in node.attribute)
    return not any(a.HasField("g") or a.graphs for a in attributes)


def written_out(model: bytes, label: str, options: Any, folder: Path, *, weights: bool) -> bytes:
    """The graph that a session with these options would run, for one that optimises no further.

    It is written to `folder` and read again: functions are inlined, and what the optimiser does is
    done. With `weights`, all weights are in files there, otherwise where they were.
    """
    path = folder / "optimized.onnx"
    options.optimized_model_filepath = str(path)
    if weights:
        for key, value in (("file_name", "optimized.bin"), ("min_size_in_bytes", str(INLINE))):
            options.add_session_config_entry(
                f"session.optimized_model_external_initializers_{key}", value
            )
    start(model, label, options)
    return in_running_order(read_model(path)).SerializeToString()


__all__ = ["LARGE", "can_be_written", "in_running_order", "is_large", "lean", "written_out"]
