"""Metadata of a node in a file, next to its attributes: NodeProto.metadata_props.

Runtimes ignore it. Writers put there what their dialect cannot contain; readers use it only if it
agrees with what the node computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_graphsurgeon as gs
from onnx import NodeProto

from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import QTYPES, QType, holding

QUANT_MIN, QUANT_MAX = "onnxq.quant_min", "onnxq.quant_max"
"""Lowest and highest code, if the dialect does not contain them."""
QUANT_TYPE, SCALE = "onnxq.type", "onnxq.scale"
"""The type of the codes, and the scales as a JSON number or list, if the dialect has neither."""


def metadata(node: gs.Node) -> dict[str, str]:
    """The entries of a node."""
    source: NodeProto | None = getattr(node, "source", None)
    return {} if source is None else {p.key: p.value for p in source.metadata_props}


def add_metadata(node: gs.Node, entries: Mapping[str, str]) -> None:
    """Add entries to a node; existing keys get the new value."""
    entries = {**metadata(node), **entries}
    source = NodeProto()
    if getattr(node, "source", None) is not None:
        source.CopyFrom(node.source)
        del source.metadata_props[:]
    for key, value in entries.items():
        source.metadata_props.add(key=key, value=value)
    node.source = source


def type_of_codes(node: gs.Node, lo: int, hi: int) -> QType | None:
    """The type of codes lo..hi: the stated one if it contains them, else the smallest that does."""
    stated = QTYPES.get(metadata(node).get(QUANT_TYPE, ""))
    known = stated is not None and not stated.floating and stated.bits <= 16
    if stated is not None and known and stated.lo <= lo and hi <= stated.hi:
        return stated
    return holding(lo, hi)


def state_type(node: gs.Node, params: QParams) -> None:
    """State the type of the codes on a node if `type_of_codes` would not find it otherwise."""
    assert params.lo is not None and params.hi is not None
    if holding(params.lo, params.hi) != params.qtype:
        add_metadata(node, {QUANT_TYPE: params.qtype.name})
