"""graphsurgeon's own objects, smaller and built without its constructors.

`gs.Node(...)`, `gs.Variable(...)` and `gs.Constant(...)` spend four fifths of their time in
attribute hooks and in synchronising empty lists. The functions here fill in the same fields; a test
compares the results with those of the constructors, to notice a change in a new graphsurgeon
release.

The time of a walk over a large graph grows with the memory it touches. So the fields read most are
in slots, which need no dictionary, and so are the fields of the lists of neighbours: every node and
tensor has two such lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_graphsurgeon as gs
from onnx import NodeProto
from onnx_graphsurgeon.util.misc import SynchronizedList


class _Inputs(SynchronizedList):  # type: ignore[misc]
    """The inputs of a node or tensor, which is among the outputs of each of them."""

    __slots__ = ("parent_obj",)
    field_name = "outputs"


class _Outputs(SynchronizedList):  # type: ignore[misc]
    """The outputs of a node or tensor, which is among the inputs of each of them."""

    __slots__ = ("parent_obj",)
    field_name = "inputs"


class Node(gs.Node):  # type: ignore[misc]
    """A node; its graph has an index by operator."""

    __slots__ = (
        *("attrs", "domain", "heirs", "inputs", "name", "op", "outputs", "owner"),
        *("removed", "source"),
    )

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("op", "domain") and self.owner is not None:
            self.owner.record.index.forget()


class _Fields:
    """The fields of tensors; a variable also has the slots of a constant, and vice versa."""

    __slots__ = ("_values", "dtype", "inputs", "name", "outputs", "overridable", "owner", "shape")


class Variable(_Fields, gs.Variable):  # type: ignore[misc]
    """A tensor that is computed."""

    type = "tensor_type"

    def to_constant(self, values: Any, export_dtype: Any = None) -> gs.Constant:
        """Turn it into a constant, as graphsurgeon does."""
        del self.dtype, self.shape
        self.__class__ = Constant
        self._values, self._export_dtype = values, export_dtype
        return self


class Constant(_Fields, gs.Constant):  # type: ignore[misc]
    """A tensor whose values are known."""

    dtype, shape = gs.Constant.dtype, gs.Constant.shape  # not the slots of a variable
    data_location = _export_dtype = None

    def to_variable(self, dtype: Any = None, shape: Any = ()) -> gs.Variable:
        """Turn it into a variable, as graphsurgeon does."""
        dtype = self.export_dtype if dtype is None else dtype
        del self._values
        self.__class__ = Variable
        self.dtype, self.shape = dtype, shape
        return self


def _setters(kind: type, *names: str) -> Any:
    """Functions that fill slots directly, bypassing the hooks of the class."""
    return (getattr(kind, name).__set__ for name in names)


_new_inputs, _new_outputs, _append = _Inputs.__new__, _Outputs.__new__, list.append
_new_node, _new_variable, _new_constant = Node.__new__, Variable.__new__, Constant.__new__
_set_op, _set_name, _set_attrs, _set_inputs, _set_outputs, _set_domain = _setters(
    Node, "op", "name", "attrs", "inputs", "outputs", "domain"
)
_set_owner, _set_source = _setters(Node, "owner", "source")
_name_tensor, _set_makers, _set_readers, _set_values, _own_tensor, _set_overridable = _setters(
    _Fields, "name", "inputs", "outputs", "_values", "owner", "overridable"
)
_set_dtype, _set_shape = _setters(_Fields, "dtype", "shape")


def make_node(
    op: str,
    name: str,
    attrs: dict[str, Any],
    inputs: Sequence[gs.Tensor],
    outputs: Sequence[gs.Tensor],
    domain: str | None = None,
    owner: gs.Graph | None = None,
    source: NodeProto | None = None,
) -> gs.Node:
    """Same as `gs.Node(op, name, attrs, inputs, outputs, domain)`.

    `owner` is its graph and `source` the message it was read from, as the importer describes them.
    """
    node = _new_node(Node)
    _set_op(node, op)
    _set_name(node, name)
    _set_attrs(node, attrs)
    links = _new_inputs(_Inputs)
    links.parent_obj = node
    list.extend(links, inputs)
    _set_inputs(node, links)
    for tensor in inputs:
        _append(tensor.outputs, node)
    links = _new_outputs(_Outputs)
    links.parent_obj = node
    list.extend(links, outputs)
    _set_outputs(node, links)
    for tensor in outputs:
        _append(tensor.inputs, node)
    _set_domain(node, domain)
    _set_owner(node, owner)
    _set_source(node, source)
    return node


def make_variable(
    name: str, dtype: Any = None, shape: Any = None, kind: str = "tensor_type"
) -> gs.Variable:
    """Same as `gs.Variable(name, dtype, shape, kind)`."""
    variable = _new_variable(Variable)
    _link(variable, name)
    _set_dtype(variable, dtype)
    _set_shape(variable, shape)
    if kind != "tensor_type":
        variable.type = kind
    return variable


def make_constant(name: str, values: Any, owner: gs.Graph | None = None) -> gs.Constant:
    """Same as `gs.Constant(name, values)`; `values` is an array or a LazyValues.

    `owner` is the graph that declares it; it is not `overridable`.
    """
    constant = _new_constant(Constant)
    _link(constant, name)
    _set_values(constant, values)
    _set_overridable(constant, False)
    if owner is not None:
        _own_tensor(constant, owner)
    return constant


def _link(tensor: gs.Tensor, name: str) -> None:
    """Name a new tensor, and give it its lists of neighbours."""
    _name_tensor(tensor, name)
    links = _new_inputs(_Inputs)
    links.parent_obj = tensor
    _set_makers(tensor, links)
    links = _new_outputs(_Outputs)
    links.parent_obj = tensor
    _set_readers(tensor, links)
