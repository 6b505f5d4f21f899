"""Bias rows keep meaning the same uses while tensors are renamed.

A bias row may name its readers, and a reader is named after the tensor it makes. A quantizer put
on a graph output, or taken off it, gives that tensor another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_graphsurgeon as gs

from onnxq.edit import read_by
from onnxq.graph import Model
from onnxq.qparams import Role


@contextmanager
def bias_readers_followed(model: Model) -> Iterator[None]:
    """Rename the readers of bias rows along with the nodes they mean now."""
    named = {r.node for row in model.qparams.of(Role.BIAS) for r in row.readers or ()}
    nodes: dict[str, gs.Node] = {}
    if named:
        nodes = {read_by(n, 0).node: n for n in model.nodes() if read_by(n, 0).node in named}
    yield
    if not nodes:
        return
    for at, row in enumerate(model.qparams.rows):
        if row.role is Role.BIAS and row.readers is not None:
            readers = tuple(
                read_by(nodes[r.node], r.input) if r.node in nodes else r for r in row.readers
            )
            if readers != row.readers:
                model.qparams.rows[at] = row.with_(readers=readers)
