"""graphsurgeon's own objects, built without its constructors.

`gs.Node(...)`, `gs.Variable(...)` and `gs.Constant(...)` spend four fifths of their time in
attribute hooks and in synchronising empty lists. These functions fill in the same fields and
nothing else; a test compares them with what the constructors make, so that a new graphsurgeon
release cannot drift away unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_graphsurgeon as gs
from onnx_graphsurgeon.util.misc import SynchronizedList


def _links(parent: object, field: str, to: Sequence[Any] = ()) -> Any:
    """A list of neighbours that keeps `field` of each of them in step with itself."""
    links = SynchronizedList.__new__(SynchronizedList)
    links.parent_obj = parent
    links.field_name = field
    if to:
        list.extend(links, to)
        for neighbour in to:
            list.append(getattr(neighbour, field), parent)
    return links


def make_node(
    op: str,
    name: str,
    attrs: dict[str, Any],
    inputs: Sequence[gs.Tensor],
    outputs: Sequence[gs.Tensor],
    domain: str | None = None,
) -> gs.Node:
    """Same as `gs.Node(op, name, attrs, inputs, outputs, domain)`."""
    node = gs.Node.__new__(gs.Node)
    fields = node.__dict__
    fields["op"] = op
    fields["name"] = name
    fields["attrs"] = attrs
    fields["inputs"] = _links(node, "outputs", inputs)
    fields["outputs"] = _links(node, "inputs", outputs)
    fields["domain"] = domain
    return node


def make_variable(
    name: str, dtype: Any = None, shape: Any = None, kind: str = "tensor_type"
) -> gs.Variable:
    """Same as `gs.Variable(name, dtype, shape, kind)`."""
    variable = gs.Variable.__new__(gs.Variable)
    fields = variable.__dict__
    fields["name"] = name
    fields["inputs"] = _links(variable, "outputs")
    fields["outputs"] = _links(variable, "inputs")
    fields["dtype"] = dtype
    fields["shape"] = shape
    fields["type"] = kind
    return variable


def make_constant(name: str, values: Any) -> gs.Constant:
    """Same as `gs.Constant(name, values)`; `values` is an array or a LazyValues."""
    constant = gs.Constant.__new__(gs.Constant)
    fields = constant.__dict__
    fields["name"] = name
    fields["inputs"] = _links(constant, "outputs")
    fields["outputs"] = _links(constant, "inputs")
    fields["_values"] = values
    fields["data_location"] = None
    fields["_export_dtype"] = None
    return constant
