"""Activations with several ranges, or a range for some consumers only, for targets with one range.

A side file names tensors. The chip that uses it rounds a tensor in its producer, so every consumer
reads the rounded values. Such a file cannot say that one consumer reads a tensor rounded and
another one unrounded, or each on its own grid. (QDQ can: the rule is for side files only.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from onnxq.backend import TableFile
from onnxq.canonical.quantizers import Row
from onnxq.edit import describe, read_by
from onnxq.graph import Model
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.quant.qparams import GRAPH_OUTPUT, Reader, Role


def _check(subject: Subject) -> Iterator[Finding]:
    files = (o for o in subject.backend.outputs if isinstance(o, TableFile) and not o.legacy)
    named = next((file for file in files if not file.format.readers), None)
    if named is None:
        return
    table = subject.collected.qparams
    found: dict[str, list[Row]] = defaultdict(list)
    for row in (*table, *table.logarithmic):
        if row.role is Role.ACTIVATION:
            found[row.tensor].append(row)
    broken = {t: rows for t, rows in found.items() if len(rows) > 1 or rows[0].readers is not None}
    reads = _reads(subject.plain) if broken else {}
    for tensor, rows in broken.items():
        served = {reader for row in rows for reader in row.readers or reads.get(tensor, {})}
        bare = [told for reader, told in reads.get(tensor, {}).items() if reader not in served]
        what = f"it has {len(rows)} quantizers"
        if bare:
            what = f"{bare[0]} reads it unquantized, others read it quantized"
        yield Finding(
            "error",
            tensor,
            ONE_RANGE.name,
            f"{what}: {subject.backend.name} has one range per tensor, for all its consumers",
            "let all consumers read one quantized tensor; 'unify-scales' merges "
            "compatible quantizers",
        )


def _reads(plain: Model) -> dict[str, dict[Reader, str]]:
    """Every use of every tensor, with a description of the consumer."""
    found: dict[str, dict[Reader, str]] = defaultdict(dict)
    for graph in plain.graphs():
        for tensor in graph.outputs:
            found[tensor.name][GRAPH_OUTPUT] = "the network output"
    for node in plain.nodes():
        for index, tensor in enumerate(node.inputs):
            if tensor.name:
                found[tensor.name][read_by(node, index)] = describe(node)
    return found


ONE_RANGE = LintRule("one-range", "activations that would need more than one range", _check)
