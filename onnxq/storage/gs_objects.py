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


_UNSET = object()


class Node(gs.Node):  # type: ignore[misc]
    """A node; its graph is told of a new operator, so that it is found by it."""

    __slots__ = ("attrs", "domain", "inputs", "name", "op", "outputs", "owner", "source")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("op", "domain") and self.owner is not None:
            self.owner.record.index.forget()


class _Links:
    """The fields of a tensor that are read most."""

    __slots__ = ("_values", "inputs", "name", "outputs", "overridable", "owner")


class Variable(_Links, gs.Variable):  # type: ignore[misc]
    """A tensor that is computed."""


class Constant(_Links, gs.Constant):  # type: ignore[misc]
    """A tensor whose values are known."""


_new_inputs, _new_outputs, _append = _Inputs.__new__, _Outputs.__new__, list.append
_new_node, _new_variable = Node.__new__, Variable.__new__
_new_constant = Constant.__new__
_set = object.__setattr__
_op,_name,_attrs,_inputs,_outputs,_domain,_owner,_source=(getattr(Node,n).__set__ for n in ("op","name","attrs","inputs","outputs","domain","owner","source"))
_tname,_tinputs,_toutputs,_towner,_tover,_tvalues=(getattr(_Links,n).__set__ for n in ("name","inputs","outputs","owner","overridable","_values"))


def make_node(
    op: str,
    name: str,
    attrs: dict[str, Any],
    inputs: Sequence[gs.Tensor],
    outputs: Sequence[gs.Tensor],
    domain: str | None = None,
    owner: Any = None, source: Any = None,
) -> gs.Node:
    """Same as `gs.Node(op, name, attrs, inputs, outputs, domain)`."""
    node = _new_node(Node)
    _op(node, op)
    _name(node, name)
    _attrs(node, attrs)
    links = _new_inputs(_Inputs)
    links.parent_obj = node
    _inputs(node, links)
    list.extend(links, inputs)
    for tensor in inputs:
        _append(tensor.outputs, node)
    links = _new_outputs(_Outputs)
    links.parent_obj = node
    _outputs(node, links)
    list.extend(links, outputs)
    for tensor in outputs:
        _append(tensor.inputs, node)
    _domain(node, domain)
    _owner(node, owner)
    _source(node, source)
    return node


def make_variable(
    name: str, dtype: Any = None, shape: Any = None, kind: str = "tensor_type"
) -> gs.Variable:
    """Same as `gs.Variable(name, dtype, shape, kind)`."""
    variable = _new_variable(Variable)
    _tname(variable, name)
    links = _new_inputs(_Inputs)
    links.parent_obj = variable
    _tinputs(variable, links)
    links = _new_outputs(_Outputs)
    links.parent_obj = variable
    _toutputs(variable, links)
    _set(variable, "dtype", dtype)
    _set(variable, "shape", shape)
    _set(variable, "type", kind)
    return variable


def make_constant(name: str, values: Any, owner=None, overridable=False) -> gs.Constant:
    """Same as `gs.Constant(name, values)`; `values` is an array or a LazyValues."""
    constant = _new_constant(Constant)
    _tname(constant, name)
    links = _new_inputs(_Inputs)
    links.parent_obj = constant
    _tinputs(constant, links)
    links = _new_outputs(_Outputs)
    links.parent_obj = constant
    _toutputs(constant, links)
    _tvalues(constant, values)
    _set(constant, "data_location", None)
    _set(constant, "_export_dtype", None)
    _towner(constant, owner)
    _tover(constant, overridable)
    return constant
