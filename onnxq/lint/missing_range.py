"""Tensors without a range that the target quantizes by its placement."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.canonical.metadata_texts import FLOAT_LAYERS, texts_of
from onnxq.edit import describe
from onnxq.lint.range_needs import Need, missing_ranges
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.operators.op_kind import kind_of
from onnxq.quant.qparams import Reader


def _check(subject: Subject) -> Iterator[Finding]:
    table = subject.collected.qparams
    readers: dict[str, list[tuple[Reader, ...] | None]] = {}
    for row in (*table, *table.logarithmic):
        readers.setdefault(row.tensor, []).append(row.readers)

    def serves(tensor: str, reader: Reader) -> bool:
        return any(some is None or reader in some for some in readers[tensor])

    source = {} if subject.source is None else {n.name: n for n in subject.source.nodes() if n.name}
    placement = subject.backend.placement
    in_float = texts_of(subject.canonical, FLOAT_LAYERS)
    for node in subject.plain.nodes():
        why = in_float.get(node.outputs[0].name) if node.outputs else None
        if why is not None and kind_of(node) in placement.inputs:
            yield Finding("info", describe(node), MISSING_RANGE.name, f"it is float: {why}", _RULES)
    has = readers.__contains__
    for need in missing_ranges(subject.plain, placement, has, serves, in_float):
        yield Finding(
            "warning",
            _given_name(need, source),
            MISSING_RANGE.name,
            f"{need.rule} has no range"
            if need.layer is not None
            else f"the tensor has no range, but {need.rule}",
            f"quantize it as {subject.backend.name} places quantizers (train or calibrate for "
            "this backend), or accept that its consumers run in float",
        )


_RULES = "nothing; to quantize it all the same, give a rule for it with --settings"


def _given_name(need: Need, source: dict[str, gs.Node]) -> str:
    """The name that the user knows: a shared weight is split, and its copies have new names."""
    layer = None if need.layer is None else source.get(need.layer.name)
    if need.layer is None or layer is None:
        return need.tensor
    at = next(i for i, tensor in enumerate(need.layer.inputs) if tensor.name == need.tensor)
    return str(layer.inputs[at].name) if at < len(layer.inputs) else need.tensor


MISSING_RANGE = LintRule(
    "missing-range", "tensors that need a range for the target and have none", _check
)
