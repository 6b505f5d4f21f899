"""Quantizers that break the scheme of the target: types, zero points, granularity, scales."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from onnxq.canonical.quantized_weights import is_operand
from onnxq.canonical.quantizers import QUANTIZERS, row_of
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.quant.scheme import Scheme


def broken_rules(node: gs.Node, scheme: Scheme, stated: int = 0) -> list[str]:
    """The rules of a scheme that a quantizer breaks; constants may be activations.

    `stated` is how much larger its codes are in the user's file, whose numbers are shown.
    """
    params = row_of(node)
    rules = scheme.violations(params, stated)
    if rules and is_operand(node):
        rules = min(rules, list(scheme.activation.violations(params, stated)), key=len)
    return rules


def _check(subject: Subject) -> Iterator[Finding]:
    backend = subject.backend
    for node in subject.canonical.nodes(*QUANTIZERS):
        params = row_of(node)
        for why in broken_rules(node, backend.scheme):
            yield Finding(
                "error",
                params.tensor,
                SCHEME.name,
                f"{params.role} quantized with {why}: not supported by {backend.name}",
                "run 'onnxq convert', which restates quantizers if that is exact, or "
                f"train or quantize with {backend.name}'s scheme: weights "
                f"({backend.scheme.weight}), activations ({backend.scheme.activation})",
            )


SCHEME = LintRule("scheme", "quantizers that the target does not support", _check)
