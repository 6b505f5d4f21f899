"""Ranges that follow from others: that of a function's input from that of its result.

Some targets run Relu inside the layer before it and want the range of the result at the layer's
own output. Let Q be the quantizer of the result, with zero on its grid. For the output x of a layer

    Q(relu(Q(x))) = Q(relu(x))      and the same for Clip from 0 up, and for Concat

since Q is monotonic, keeps what lies on its grid, and both sides are Q(0) for x < 0. So a row at
the layer's output that equals the row of the result changes no number, if nothing else reads that
output. It is added for targets that need it and dropped when a file is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of, producer, users
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import scalar
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role


def with_implied(
    table: QParamTable, model: Model, functions: Collection[str], layers: Collection[str] = ()
) -> QParamTable:
    """`table` and the rows that follow for the inputs of `functions`.

    `layers` are the operators whose outputs get such rows; empty means any.
    """
    rows = _for_all(table)
    given = {row.tensor for row in table.of(Role.ACTIVATION)}
    added: list[QParams] = []
    for source, result in _pairs(model, functions, layers):
        if result in rows and source not in given and rows[result].axis is None:
            rows[source] = rows[result].with_(tensor=source, source="")
            added.append(rows[source])
    return QParamTable([*table, *added])


def without_implied(
    table: QParamTable, model: Model, functions: Collection[str], layers: Collection[str] = ()
) -> QParamTable:
    """`table` without the rows that `with_implied` adds."""
    rows = _for_all(table)
    drop: set[str] = set()
    for source, result in _pairs(model, functions, layers):
        if source in rows and result in rows and rows[source].same_grid(rows[result]):
            drop.add(source)
    return QParamTable(
        [row for row in table if row.role is not Role.ACTIVATION or row.tensor not in drop]
    )


def _for_all(table: QParamTable) -> dict[str, QParams]:
    """Activations that all their consumers read on one grid."""
    found = table.of(Role.ACTIVATION)
    count = Counter(row.tensor for row in found)
    return {r.tensor: r for r in found if r.readers is None and count[r.tensor] == 1}


def _pairs(
    model: Model, functions: Collection[str], layers: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The tensors that only such a function reads, each with its result; results come first."""
    for node in reversed(model.nodes(*functions)):
        if domain_of(node) or (node.op == "Clip" and not _starts_at_zero(node)):
            continue
        for source in node.inputs if node.op == "Concat" else node.inputs[:1]:
            layer = producer(source)
            if layer is None or (layers and layer.op not in layers):
                continue
            if len(users(source)) == 1 and not model.is_output(source):
                yield source.name, node.outputs[0].name


def _starts_at_zero(clip: gs.Node) -> bool:
    return bool(clip.attrs.get("min", scalar(inputs_of(clip, 2)[1])) == 0)
