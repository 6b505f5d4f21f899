"""Tensors that the target quantizes, by its placement, and that have no range."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.discovery import find_pass
from onnxq.lint_rule import Finding, LintRule, Subject
from onnxq.pipeline import Pipeline
from onnxq.range_needs import missing_ranges


def _check(subject: Subject) -> Iterator[Finding]:
    collected = Pipeline(find_pass("collect-qparams")()).run(subject.canonical).model
    table = collected.qparams
    named = {row.tensor for row in (*table, *table.logarithmic)}
    for need in missing_ranges(subject.canonical, subject.backend.placement, named.__contains__):
        what = "weight" if need.weight else "tensor"
        yield Finding(
            "warning",
            need.tensor,
            MISSING_RANGE.name,
            f"the {what} has no range, but {need.rule}",
            f"quantize it as {subject.backend.name} places quantizers (train or calibrate for "
            "this backend), or accept that what reads it runs in float",
        )


MISSING_RANGE = LintRule(
    "missing-range", "tensors without a range that the target wants one for", _check
)
