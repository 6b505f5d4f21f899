"""Model-local functions as stored: their nodes, and a digest that does not depend on names.

Each value is a digest of its operator, its attributes and the digests of its inputs, so two bodies
have the same form if they compute the same expression: names of values and nodes, the order of
nodes, comments and unused nodes make no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from onnx import AttributeProto, FunctionProto, NodeProto


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those in their bodies."""
    stack = [iter(nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        for attribute in node.attribute:
            stack.extend(iter(body.node) for body in (attribute.g, *attribute.graphs))


def form_of(function: FunctionProto) -> str | None:
    """A digest of inputs, attributes and results; None if the body is invalid.

    Opset versions are not part of it: the caller has to compare them.
    """
    known = {name: _digest("input", at) for at, name in enumerate(function.input)}
    for node in function.node:
        if any(name and name not in known for name in node.input):
            return None
        domain = "" if node.domain == "ai.onnx" else node.domain
        operator = (domain, node.op_type, node.overload)
        inputs = [known[name] if name else "" for name in node.input]
        made = _digest(operator, _attributes(node.attribute), inputs, len(node.output))
        known.update((n, _digest(made, at)) for at, n in enumerate(node.output) if n)
    if not all(name in known for name in function.output):
        return None
    return _digest(
        len(function.input),
        sorted(function.attribute),
        _attributes(function.attribute_proto),
        [known[name] for name in function.output],
    )


def _attributes(attributes: Iterable[AttributeProto]) -> list[str]:
    found = []
    for attribute in attributes:
        bare = AttributeProto()
        bare.CopyFrom(attribute)
        bare.ClearField("doc_string")
        if bare.HasField("t"):
            bare.t.ClearField("name")
            bare.t.ClearField("doc_string")
        found.append(bare.SerializeToString(deterministic=True).hex())
    return sorted(found)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
