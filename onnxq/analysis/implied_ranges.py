"""Ranges that follow from others: what a function reads, where the range of its result is known.

Some targets run Relu inside the layer before it and want the range of the result at the layer's
own output. Let Q be the quantizer of the result, with zero on its grid. For x behind a layer

    Q(relu(Q(x))) = Q(relu(x))      and the same for Clip from 0 up, and for Concat

since Q is monotonic, keeps what lies on its grid, and both sides are Q(0) for x < 0. So a row at
the layer's output that equals the row of the result changes no number. It is added where a target
asks for it and dropped when a file is read. That holds where nobody else reads the layer's output.
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
    """`table` and the rows that follow for what `functions` read.

    `layers` are the operators whose outputs get such rows; any where it is empty.
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
    """Activations that everything which reads them sees on one grid."""
    found = table.of(Role.ACTIVATION)
    count = Counter(row.tensor for row in found)
    return {r.tensor: r for r in found if r.readers is None and count[r.tensor] == 1}


def _pairs(
    model: Model, functions: Collection[str], layers: Collection[str]
) -> Iterator[tuple[str, str]]:
    """What such a function alone reads, and what it makes; results before their sources."""
    for node in reversed(model.nodes(*functions)):
        if domain_of(node) or (node.op == "Clip" and not _starts_at_zero(node)):
            continue
        sources = node.inputs if node.op == "Concat" else node.inputs[:1]
        for source in sources:
            maker = producer(source)
            if maker is None or (layers and maker.op not in layers):
                continue
            alone = len(users(source)) == 1 and not model.is_output(source)
            if alone:
                yield source.name, node.outputs[0].name


def _starts_at_zero(node: gs.Node) -> bool:
    low = node.attrs.get("min")
    if low is None and len(node.inputs) > 1:
        low = scalar(inputs_of(node, 3)[1])
    return low is not None and float(low) == 0.0
