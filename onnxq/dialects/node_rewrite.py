"""One node, rewritten if possible: how every reader of a dialect treats each of its nodes."""

from __future__ import annotations

from collections.abc import Callable

import onnx_graphsurgeon as gs

from onnxq.edit import describe, inputs_of
from onnxq.errors import QParamsError
from onnxq.graph.constants import computed
from onnxq.pass_ import Trace
from onnxq.quant.qparams import Array


class Declined(Exception):
    """The reason why a well-formed node stays as it is: it cannot be expressed otherwise."""


def invalid(what: str) -> QParamsError:
    """The error for a node that no runtime could run."""
    return QParamsError(what, fix="the file is not a valid ONNX model: export it again")


def attempt(node: gs.Node, trace: Trace, rewrite: Callable[[], str]) -> None:
    """Rewrite one node, or report why it stays.

    `rewrite` returns what became of the node, '' if there was nothing to do. Parameters that no
    runtime could use are an error, which is raised again with the name of the node.
    """
    label = describe(node)  # rewriting takes the node apart
    try:
        if inputs_of(node, 1)[0] is None:
            raise invalid("it has no input")
        detail = rewrite()
    except Declined as reason:
        trace.skip(node, str(reason))
    except QParamsError as error:
        raise QParamsError(f"{label}: {error.what}", fix=error.fix) from error
    else:
        if detail:
            trace.rewrote(label, detail)


def known_input(node: gs.Node, index: int, what: str) -> tuple[gs.Tensor, Array]:
    """A parameter of `node` and its value, which must be constant."""
    tensor = inputs_of(node, index + 1)[index]
    if tensor is None:
        raise invalid(f"it has no {what}")
    value = computed(tensor)
    if value is None:
        raise Declined(f"its {what} '{tensor.name}' is computed at run time")
    return tensor, value
