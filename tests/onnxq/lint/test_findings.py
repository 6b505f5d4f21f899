"""Rules are run in order; what they find is told once, the worst first."""

from __future__ import annotations

from dataclasses import replace

from onnxq.backend import find_backend
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
