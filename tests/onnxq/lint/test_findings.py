"""Rules are run in order; what they find is told once, the worst first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onnxq.backend import find_backend
from onnxq.errors import OptionError
from onnxq.graph import from_proto
from onnxq.lint.findings import EVERYWHERE, findings
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.reading import canonical
from tests.models.lint_cases import conv_net


def test_the_worst_comes_first_and_nothing_twice() -> None:
    told = [
        Finding(severity, "here", "mine", "text", "fix")
        for severity in ("info", "error", "warning", "error")
    ]
    rule = LintRule("mine", "all of it", lambda _: told)
    backend = replace(find_backend("onnxruntime"), lint=(rule,))
    model = from_proto(conv_net())
    found = [f for f in findings(Subject(backend, model, canonical(model)[0])) if f.rule == "mine"]
    assert [f.severity for f in found] == ["error", "warning", "info"]


def test_names_of_rules_are_their_own() -> None:
    rules = {r.name: r for r in (*EVERYWHERE, *find_backend("onnxruntime").lint)}
    assert len(rules) == len(EVERYWHERE) + len(find_backend("onnxruntime").lint)
    assert all(rule.summary for rule in rules.values())


def told_by(check: Any) -> None:
    backend = replace(find_backend("onnxruntime"), lint=(LintRule("mine", "x", check),))
    model = from_proto(conv_net())
    findings(Subject(backend, model, canonical(model)[0]))


@pytest.mark.parametrize(
    ("found", "given"),
    [
        (None, "nothing"),
        (Finding("info", "here", "mine", "text", "fix"), "a Finding"),
        (["text"], "a str"),
    ],
)
def test_what_is_no_finding_names_the_rule(found: object, given: str) -> None:
    with pytest.raises(OptionError, match=rf"lint rule 'mine': check\(subject\) gave {given}"):
        told_by(lambda _: found)


@pytest.mark.parametrize(
    ("severity", "where", "fix"),
    [("warn", "here", "error, warning, info"), ("info", 3, "describe")],
)
def test_a_wrong_finding_names_the_rule(severity: Any, where: Any, fix: str) -> None:
    with pytest.raises(OptionError, match="lint rule 'mine'") as caught:
        Finding(severity, where, "mine", "text", "fix")
    assert fix in caught.value.fix


def test_a_rule_that_fails_is_named() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        told_by(lambda _: 1 / 0)
    assert caught.value.__notes__ == ["in the lint rule 'mine'"]
