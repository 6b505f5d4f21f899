"""Layers whose 32-bit sums an input can wrap."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.edit import describe
from onnxq.lint.rule import Finding, LintRule, Subject


def _check(subject: Subject) -> Iterator[Finding]:
    for found in subject.bounds:
        if not found.fits_accumulator:
            yield Finding(
                "warning",
                describe(found.node),
                ACCUMULATOR.name,
                f"sums of output channel {found.channel} can reach {found.low}..{found.high}, "
                "which exceeds 32 bits: an integer kernel wraps around",
                "use fewer bits for weight or input, or a larger bias step (a tiny scale makes "
                "the bias large)",
            )


ACCUMULATOR = LintRule("accumulator", "layers whose 32-bit sums can overflow", _check)
