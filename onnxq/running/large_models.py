"""Sessions of models with so many weights that no session may copy them all.

onnxruntime maps external data, and a weight that is read where it lies takes no memory. But by
default it copies all weights at once:

* kernels pack weights anew when a session opens, and the packed copies stay;
* whatever depends on constants only, as the DequantizeLinear of a weight, may run first, so that
  the float weights of the whole network wait in memory for their layers;
* memory that was needed once is kept for the next run;
* the optimiser makes new weights (uint8 of int8, other layouts), which are not in a file.

A large model is therefore run without packing, and its nodes in the order of the file, in which
such nodes stand right before their readers. What onnxruntime makes of a graph, by optimising it or
by inlining functions, has another order: it is first written to a file, and put in order there.
Results are the same but for rounding: a kernel may need packed weights, and another one runs.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto, TensorProto

from onnxq.running.ort_session import start
from onnxq.running.temporary_weights import INLINE
from onnxq.storage.model_files import read_model
from onnxq.storage.node_order import reads

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
    """A copy in which nodes that depend on constants only stand right before their first reader."""
    known = {t.name for t in proto.graph.initializer} | {""}
    early: dict[str, NodeProto] = {}
    late: list[NodeProto] = []
    for node in proto.graph.node:
        if known.issuperset(node.input) and not _has_body(node):
            known.update(node.output)
            early.update(dict.fromkeys(node.output, node))
        else:
            late.append(node)
    made = ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:]
    waiting = [*reversed(late)]
    waiting[:0] = reversed([*early.values()])  # graph outputs, or read by nobody: at the end
    placed: set[int] = set()
    while waiting:
        node = waiting[-1]
        needed = [early[name] for name in reads(node) if name in early]
        needed = [each for each in needed if id(each) not in placed]
        if needed:
            waiting += reversed(needed)
            continue
        waiting.pop()
        if id(node) not in placed:
            placed.add(id(node))
            made.graph.node.append(node)
    return made


def can_be_written(proto: ModelProto) -> bool:
    """Whether onnxruntime can read what it makes of a graph.

    Not if there are bodies: it gives new tensors in them the same names.
    """
    return not any(_has_body(node) for node in proto.graph.node)


def _has_body(node: NodeProto) -> bool:
    return any(a.HasField("g") or a.graphs for a in node.attribute)


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
