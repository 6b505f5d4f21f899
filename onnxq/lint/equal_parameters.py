"""Operators that only move codes: their inputs and outputs must have equal parameters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.accumulator_bounds import input_quantizer
from onnxq.canonical.fake_quantize import is_fake_quantize, params_of
from onnxq.edit import describe
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.operators.op_kind import kind_of
from onnxq.quant.qparams import Array, QParams


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
                f"different parameters ({_difference(found[0], other)}), "
                "so the target requantizes or computes in float",
                _fix(found[0], other, subject.backend.name),
            )


def _of_inputs(node: gs.Node, known: dict[int, gs.Node | None]) -> list[QParams]:
    found = [input_quantizer(t, known) for t in node.inputs if t.name]
    return [params_of(q) for q in found if q is not None]


def _difference(one: QParams, other: QParams) -> str:
    """The scales, and where they agree the zero points, or else the codes."""
    both = one, other
    if not np.array_equal(one.scale, other.scale):
        return " and ".join(f"scale {_first(p.scale):.6g}" for p in both)
    scale = f"scale {_first(one.scale):.6g} in both, "
    if not np.array_equal(one.zero_point, other.zero_point):
        return scale + " and ".join(f"zero point {_first(p.zero_point):.0f}" for p in both)
    return scale + " and ".join(f"codes {p.lo}..{p.hi}" for p in both)


def _fix(one: QParams, other: QParams, backend: str) -> str:
    placed = (
        "quantize the float model for this target (onnxq quantize FLOAT_MODEL --backend "
        f"{backend} --data ...), or train it for it: both then get one range"
    )
    if np.array_equal(one.scale, other.scale):
        return (
            "if they were one grid before the pipeline of the backend, write "
            f"RetypeActivations(..., together=True) in it; if not, {placed}"
        )
    return placed


def _first(values: Array) -> float:
    return float(values.reshape(-1)[0])


EQUAL_PARAMETERS = LintRule(
    "equal-parameters", "operators that move codes between different quantizers", _check
)
