"""One node, rewritten if it can be: what every reader of a dialect does with each of its nodes."""

from __future__ import annotations

from collections.abc import Callable

import onnx_graphsurgeon as gs

from onnxq.edit import describe, inputs_of
from onnxq.errors import QParamsError
from onnxq.graph.constants import computed
from onnxq.pass_ import Trace
from onnxq.quant.qparams import Array


class Declined(Exception):
    """Why a well-formed node stays as it is: what it would become does not exist."""


def attempt(node: gs.Node, trace: Trace, rewrite: Callable[[], str]) -> None:
    """Rewrite one node, or report why it stays.

    `rewrite` says what became of the node, '' where there was nothing to do. Parameters that no
    runtime could use are an error, which is raised again with the name of the node.
    """
    label = describe(node)  # rewriting takes the node apart
    try:
        if inputs_of(node, 1)[0] is None:
            raise QParamsError("it has no input", fix="export the model again")
        detail = rewrite()
    except Declined as reason:
        trace.skip(node, str(reason))
    except QParamsError as error:
        raise QParamsError(f"{label}: {error.what}", fix=error.fix) from error
    else:
        if detail:
            trace.rewrote(label, detail)


def known_input(node: gs.Node, index: int, what: str) -> tuple[gs.Tensor, Array]:
    """A parameter of `node` and its value, which constants must give."""
    tensor = inputs_of(node, index + 1)[index]
    if tensor is None:
        raise QParamsError(f"it has no {what}", fix="export the model again")
    value = computed(tensor)
    if value is None:
        raise Declined(f"its {what} '{tensor.name}' is computed at run time")
    return tensor, value
