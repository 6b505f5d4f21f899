"""Models that onnxruntime crashes on: creating a session ends the whole process.

QLinearWhere computes tables when the session is created if scale and zero point of its result are
constants. It then reads the zero points of its operands without checking that they are constants,
too: they are not if they are computed at run time or may be replaced by the caller.

Optimised sessions read the bias of a LayerNormalization even if its name among the inputs is blank,
but not if the list of inputs ends before it.

Both occur in onnxruntime 1.31. For windows larger than their input see `window_sizes`.
"""

from __future__ import annotations

from onnx import ModelProto, NodeProto

from onnxq.errors import UnsupportedModelError
from onnxq.running.window_sizes import check_before_inference
from onnxq.storage.function_form import all_nodes

_OPERANDS, _RESULT = (3, 6), (7, 8)


def check_survives(model: ModelProto, label: str, *, optimized: bool) -> None:
    """Raise UnsupportedModelError if onnxruntime would crash."""
    known: set[str] | None = None
    for node in all_nodes(model.graph.node):
        name = node.name or ", ".join(node.output)
        if node.op_type == "QLinearWhere":
            known = _constants(model) if known is None else known
            if _are_known(node, known, _RESULT) and not _are_known(node, known, _OPERANDS):
                raise UnsupportedModelError(
                    f"{label}: node '{name}' (QLinearWhere) has a zero point that is not constant, "
                    "and onnxruntime crashes on it",
                    fix="make the zero points initializers that are not graph inputs",
                )
        blank = node.op_type == "LayerNormalization" and list(node.input[2:]) == [""]
        if optimized and blank:
            raise UnsupportedModelError(
                f"{label}: node '{name}' (LayerNormalization) has a blank bias, and "
                "onnxruntime's optimiser crashes on it",
                fix="remove the blank name from the end of the node's inputs: the meaning is "
                "the same",
            )
    check_before_inference(model, label)


def _constants(model: ModelProto) -> set[str]:
    graph = model.graph
    known = {tensor.name for tensor in graph.initializer}
    known |= {n for node in graph.node if node.op_type == "Constant" for n in node.output}
    return known - {i.name for i in graph.input} if model.ir_version >= 4 else known


def _are_known(node: NodeProto, known: set[str], positions: tuple[int, int]) -> bool:
    return all(at < len(node.input) and node.input[at] in known for at in positions)
