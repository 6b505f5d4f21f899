"""The uses that a bias row means, also while tensors are renamed.

A bias row may name its readers, and a reader is named after the tensor it produces. Quantizing a
graph output, or no longer quantizing it, gives that tensor another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import onnx_graphsurgeon as gs

from onnxq.edit import read_by, users
from onnxq.errors import PassError, near_matches
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array
from onnxq.operators.weight_axis import BIAS_INPUT
from onnxq.quant.qparams import Array, QParams, Role


class BiasUse(NamedTuple):
    """A bias row, its constant, and the uses of the constant that the row is about."""

    row: QParams
    tensor: gs.Constant
    value: Array
    uses: list[tuple[gs.Node, int]]


def bias_uses(model: Model) -> list[BiasUse]:
    """The constants and uses of the bias rows in the table; an error if the graph lacks them."""
    rows = model.qparams.of(Role.BIAS)
    if not rows:
        return []
    places = {t.name: t for n in model.nodes() for t in n.inputs if isinstance(t, gs.Constant)}
    found = []
    for row in rows:
        tensor = places.get(row.tensor)
        value = None if tensor is None else array(tensor)
        if tensor is None or value is None:
            raise PassError(
                f"the table has a bias row for '{row.tensor}', which is not a constant here",
                fix=near_matches(row.tensor, places) if places else "run 'quantize-bias' again",
            )
        uses = users(tensor)
        if row.readers is not None:
            uses = [(n, i) for n, i in uses if read_by(n, i) in row.readers]
        if not uses:
            raise PassError(
                f"the table has a bias row for '{row.tensor}', but none of its consumers is left",
                fix="run 'quantize-bias' again",
            )
        found.append(BiasUse(row, tensor, value, uses))
    return found


def read_as_bias(tensor: gs.Tensor, model: Model) -> bool:
    """Whether layers read `tensor` as their bias, and nothing else reads it."""
    uses = users(tensor)
    layers = all(not domain_of(n) and BIAS_INPUT.get(n.op) == i for n, i in uses)
    return bool(uses) and layers and not model.is_output(tensor)


@contextmanager
def bias_readers_followed(model: Model) -> Iterator[None]:
    """Rename the readers of bias rows along with the nodes they mean now."""
    named = {r.node for row in model.qparams.of(Role.BIAS) for r in row.readers or ()}
    all_nodes = model.nodes() if named else []
    nodes = {read_by(n, 0).node: n for n in all_nodes if read_by(n, 0).node in named}
    yield
    for at, row in enumerate(model.qparams.rows):
        if nodes and row.role is Role.BIAS and row.readers is not None:
            readers = tuple(
                read_by(nodes[r.node], r.input) if r.node in nodes else r for r in row.readers
            )
            if readers != row.readers:
                model.qparams.rows[at] = row.with_(readers=readers)
