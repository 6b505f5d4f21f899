"""Domains of nodes: the name space that an operator belongs to."""

from __future__ import annotations

import onnx_graphsurgeon as gs

OWN = "onnxq"
"""The domain of the canonical form."""
QUANTIZERS = (f"{OWN}::FakeQuantize", f"{OWN}::FakeQuantizeLog")
"""Its quantizers, as `Model.nodes` takes them."""


def domain_of(node: gs.Node) -> str:
    """The node's domain; '' for the default one, however it is spelled."""
    return "" if node.domain in (None, "ai.onnx") else str(node.domain)


def changed_domain(node: gs.Node) -> bool:
    """Whether a pass made this node or changed its domain, which must then be declared."""
    source = getattr(node, "source", None)
    return source is None or source.domain != (node.domain or "")
