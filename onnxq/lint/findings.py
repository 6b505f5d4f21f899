"""Runs the lint rules of a backend over a model."""

from __future__ import annotations

from onnxq.lint.accumulator import ACCUMULATOR
from onnxq.lint.equal_parameters import EQUAL_PARAMETERS
from onnxq.lint.missing_range import MISSING_RANGE
from onnxq.lint.one_range import ONE_RANGE
from onnxq.lint.rule import Finding, Subject
from onnxq.lint.scheme import SCHEME

EVERYWHERE = (SCHEME, MISSING_RANGE, ONE_RANGE, EQUAL_PARAMETERS, ACCUMULATOR)
"""Rules for every target."""

_ORDER = ("error", "warning", "info")


def findings(subject: Subject) -> tuple[Finding, ...]:
    """The findings of all rules of the subject's backend, the worst first, each once."""
    rules = (*EVERYWHERE, *subject.backend.lint)
    found = dict.fromkeys(f for rule in rules for f in rule.check(subject))
    return tuple(sorted(found, key=lambda f: _ORDER.index(f.severity)))
