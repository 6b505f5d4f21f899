"""graphsurgeon's own objects, built without its constructors.

`gs.Node(...)`, `gs.Variable(...)` and `gs.Constant(...)` spend four fifths of their time in
attribute hooks and in synchronising empty lists. These functions fill in the same fields and
nothing else; a test compares them with what the constructors make, so that a change in a new
graphsurgeon release is noticed.

The lists of neighbours are graphsurgeon's too, with a slot for what each holds besides: there are
two for every node and tensor, and a dictionary each would be a third of all objects of a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_graphsurgeon as gs
from onnx_graphsurgeon.util.misc import SynchronizedList


class _Inputs(SynchronizedList):  # type: ignore[misc]
    """The inputs of a node or tensor, which is among the outputs of each of them."""

    __slots__ = ("parent_obj",)
    field_name = "outputs"


class _Outputs(SynchronizedList):  # type: ignore[misc]
    """The outputs of a node or tensor, which is among the inputs of each of them."""

    __slots__ = ("parent_obj",)
    field_name = "inputs"


class _Node(gs.Node):  # type: ignore[misc]
    """A node whose graph is told of a new operator, so that it is found by it."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("op", "domain") and "owner" in self.__dict__:
            self.__dict__["owner"].record.index.forget()


_new_inputs, _new_outputs, _append = _Inputs.__new__, _Outputs.__new__, list.append
_new_node, _new_variable = gs.Node.__new__, gs.Variable.__new__
_new_constant = gs.Constant.__new__


def make_node(
    op: str,
    name: str,
    attrs: dict[str, Any],
    inputs: Sequence[gs.Tensor],
    outputs: Sequence[gs.Tensor],
    domain: str | None = None,
) -> gs.Node:
    """Same as `gs.Node(op, name, attrs, inputs, outputs, domain)`."""
    node = _new_node(_Node)
    fields = node.__dict__
    fields["op"] = op
    fields["name"] = name
    fields["attrs"] = attrs
    links = fields["inputs"] = _new_inputs(_Inputs)
    links.parent_obj = node
    list.extend(links, inputs)
    for tensor in inputs:
        _append(tensor.outputs, node)
    links = fields["outputs"] = _new_outputs(_Outputs)
    links.parent_obj = node
    list.extend(links, outputs)
    for tensor in outputs:
        _append(tensor.inputs, node)
    fields["domain"] = domain
    return node


def make_variable(
    name: str, dtype: Any = None, shape: Any = None, kind: str = "tensor_type"
) -> gs.Variable:
    """Same as `gs.Variable(name, dtype, shape, kind)`."""
    variable = _new_variable(gs.Variable)
    fields = variable.__dict__
    fields["name"] = name
    links = fields["inputs"] = _new_inputs(_Inputs)
    links.parent_obj = variable
    links = fields["outputs"] = _new_outputs(_Outputs)
    links.parent_obj = variable
    fields["dtype"] = dtype
    fields["shape"] = shape
    fields["type"] = kind
    return variable


def make_constant(name: str, values: Any) -> gs.Constant:
    """Same as `gs.Constant(name, values)`; `values` is an array or a LazyValues."""
    constant = _new_constant(gs.Constant)
    fields = constant.__dict__
    fields["name"] = name
    links = fields["inputs"] = _new_inputs(_Inputs)
    links.parent_obj = constant
    links = fields["outputs"] = _new_outputs(_Outputs)
    links.parent_obj = constant
    fields["_values"] = values
    fields["data_location"] = None
    fields["_export_dtype"] = None
    return constant
