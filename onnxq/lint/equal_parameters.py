"""Operators that only move codes: their inputs and outputs must have equal parameters."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.analysis.accumulator_bounds import input_quantizer
from onnxq.canonical.fake_quantize import is_fake_quantize, params_of
from onnxq.edit import describe
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.operators.op_kind import kind_of
from onnxq.quant.qparams import QParams


def _check(subject: Subject) -> Iterator[Finding]:
    placement = subject.backend.placement
    known: dict[int, gs.Node | None] = {}
    for node in subject.canonical.nodes():
        kind = kind_of(node)
        if kind in placement.unified:
            found = _of_inputs(node, known)
        elif kind in placement.moves:
            consumers = [n for t in node.outputs for n in t.outputs if is_fake_quantize(n)]
            found = [*_of_inputs(node, known)[:1], *map(params_of, consumers)]
        else:
            continue
        other = next((p for p in found[1:] if not p.same_grid(found[0])), None)
        if other is not None:
            yield Finding(
                "warning",
                describe(node),
                EQUAL_PARAMETERS.name,
                f"it only moves codes, but '{found[0].tensor}' and '{other.tensor}' have "
                f"different parameters (scale {_first(found[0]):.6g} and {_first(other):.6g}), "
                "so the target requantizes or computes in float",
                "give both the same range: run 'propagate-ranges' or 'unify-scales'",
            )


def _of_inputs(node: gs.Node, known: dict[int, gs.Node | None]) -> list[QParams]:
    found = [input_quantizer(t, known) for t in node.inputs if t.name]
    return [params_of(q) for q in found if q is not None]


def _first(params: QParams) -> float:
    return float(params.scale.reshape(-1)[0])


EQUAL_PARAMETERS = LintRule(
    "equal-parameters", "operators that move codes between different quantizers", _check
)
