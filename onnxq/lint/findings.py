"""Runs the lint rules of a backend over a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnxq.errors import OptionError
from onnxq.lint.accumulator import ACCUMULATOR
from onnxq.lint.equal_parameters import EQUAL_PARAMETERS
from onnxq.lint.missing_range import MISSING_RANGE
from onnxq.lint.one_range import ONE_RANGE
from onnxq.lint.rule import SEVERITIES, Finding, LintRule, Subject
from onnxq.lint.scheme import SCHEME

EVERYWHERE = (SCHEME, MISSING_RANGE, ONE_RANGE, EQUAL_PARAMETERS, ACCUMULATOR)
"""Rules for every target."""


def findings(subject: Subject) -> tuple[Finding, ...]:
    """The findings of all rules of the subject's backend, the worst first, each once."""
    rules = (*EVERYWHERE, *subject.backend.lint)
    found = dict.fromkeys(f for rule in rules for f in _checked(rule, subject))
    return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))


def _checked(rule: LintRule, subject: Subject) -> Iterator[Finding]:
    """The findings of one rule; what goes wrong in it is told with its name."""
    try:
        found = rule.check(subject)
        if not isinstance(found, Iterable):
            raise _no_findings(rule, found)
        for each in found:
            if not isinstance(each, Finding):
                raise _no_findings(rule, each)
            yield each
    except Exception as error:
        error.add_note(f"in the lint rule '{rule.name}'")
        raise


def _no_findings(rule: LintRule, found: object) -> OptionError:
    given = "nothing" if found is None else f"a {type(found).__name__}"
    return OptionError(
        f"lint rule '{rule.name}': check(subject) gave {given} where findings were expected",
        fix="yield Finding(severity, where, rule, message, fix) for each thing that is found",
    )
