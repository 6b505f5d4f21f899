"""Models that onnxruntime does not survive: making a session of one ends the whole process.

QLinearWhere computes tables when the session is made if scale and zero point of its result are
constants, and reads the zero points of its operands for that without asking whether they are there.
Computed at run time, or replaceable by the caller, they are not (seen in onnxruntime 1.31).
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto, NodeProto

from onnxq.errors import UnsupportedModelError
from onnxq.function_form import all_nodes

_OPERANDS, _RESULT = (3, 6), (7, 8)


def check_survives(model: ModelProto, label: str) -> None:
    """Raise UnsupportedModelError where onnxruntime would crash."""
    found = [n for n in all_nodes(model.graph.node) if n.op_type == "QLinearWhere"]
    if not found:
        return
    known = _constants(model.graph, overridable=model.ir_version >= 4)
    for node in found:
        if _is_known(node, known, _RESULT) and not _is_known(node, known, _OPERANDS):
            raise UnsupportedModelError(
                f"{label}: node '{node.name or ', '.join(node.output)}' (QLinearWhere) has a zero "
                "point that is no constant, which onnxruntime does not survive",
                fix="make the zero points initializers that are not graph inputs",
            )


def _constants(graph: GraphProto, overridable: bool) -> set[str]:
    known = {tensor.name for tensor in graph.initializer}
    known |= {n for node in graph.node if node.op_type == "Constant" for n in node.output}
    return known - {i.name for i in graph.input} if overridable else known


def _is_known(node: NodeProto, known: set[str], positions: tuple[int, int]) -> bool:
    return all(at < len(node.input) and node.input[at] in known for at in positions)
