"""Models that onnxruntime crashes on: creating a session ends the whole process.

QLinearWhere computes tables when the session is made if scale and zero point of its result are
constants, and reads the zero points of its operands for that without asking whether they are there.
Computed at run time, or replaceable by the caller, they are not.

Optimised sessions read the bias of a LayerNormalization even where its place among the inputs is
left blank. Where the list of inputs is shorter they do not.

Both were seen in onnxruntime 1.31. For windows larger than their input see `window_sizes`.
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from onnxq.errors import UnsupportedModelError
from onnxq.running.window_sizes import check_before_inference
from onnxq.storage.function_form import all_nodes

_OPERANDS, _RESULT = (3, 6), (7, 8)


def check_survives(model: ModelProto, label: str, *, optimized: bool) -> None:
    """Raise UnsupportedModelError if onnxruntime would crash."""
    _check_where(model, label)
    check_before_inference(model, label)
    if optimized:
        _check_norms(model, label)


def _check_norms(model: ModelProto, label: str) -> None:
    for node in all_nodes(model.graph.node):
        if node.op_type == "LayerNormalization" and list(node.input[2:]) == [""]:
            name = node.name or ", ".join(node.output)
            raise UnsupportedModelError(
                f"{label}: node '{name}' (LayerNormalization) has a blank bias, and "
                "onnxruntime's optimiser crashes on it",
                fix="remove the blank name from the end of the node's inputs: the meaning is "
                "the same",
            )


def _check_where(model: ModelProto, label: str) -> None:
    found = [n for n in all_nodes(model.graph.node) if n.op_type == "QLinearWhere"]
    if not found:
        return
    known = _constants(model.graph, overridable=model.ir_version >= 4)
    for node in found:
        if _is_known(node, known, _RESULT) and not _is_known(node, known, _OPERANDS):
            raise UnsupportedModelError(
                f"{label}: node '{node.name or ', '.join(node.output)}' (QLinearWhere) has a "
                "zero point that is not constant, and onnxruntime crashes on it",
                fix="make the zero points initializers that are not graph inputs",
            )


def _constants(graph: GraphProto, overridable: bool) -> set[str]:
    known = {tensor.name for tensor in graph.initializer}
    known |= {n for node in graph.node if node.op_type == "Constant" for n in node.output}
    return known - {i.name for i in graph.input} if overridable else known


def _is_known(node: NodeProto, known: set[str], positions: tuple[int, int]) -> bool:
    return all(at < len(node.input) and node.input[at] in known for at in positions)
