"""Findings and explanations as people see them."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from onnxq.graph import from_proto
from onnxq.lint.rule import Finding
from onnxq.views import lint_tables
from onnxq.workflows.explain import explain
from onnxq.workflows.lint_model import LintReport
from tests.models.lint_cases import conv_net


def text(view: RenderableType) -> str:
    out = io.StringIO()
    Console(width=160, file=out).print(view)
    return out.getvalue()


def test_the_same_message_about_many_places_is_one_row() -> None:
    found = [Finding("warning", f"[layer{i}]", "r", "the same", "fix it") for i in range(7)]
    shown = text(lint_tables.findings(found))
    assert shown.count("the same") == 1
    assert "[layer0]" in shown
    assert "… 7 in all" in shown
    assert "[layer3]" not in shown
    assert "[layer6]" in text(lint_tables.findings(found, every=True))


def test_messages_with_other_numbers_share_a_row() -> None:
    found = [Finding("warning", f"'{i}'", "r", f"sums to {i}..{9 * i}", "fix") for i in range(9)]
    found.append(Finding("warning", "'z'", "r", "has no kernel", "fix"))
    shown = text(lint_tables.findings(found))
    assert "sums to 0..0 (the first; the others are alike)" in shown
    assert shown.count("sums to") == 1
    assert "has no kernel" in shown
    every = text(lint_tables.findings(found, every=True))
    assert every.count("sums to") == 9


def test_a_report_counts() -> None:
    findings = (Finding("error", "a", "r", "m", "f"), Finding("warning", "b", "r", "n", "f"))
    assert "1 error, 1 warning" in text(lint_tables.reports([LintReport("b", "m.onnx", findings)]))
    assert "0 errors, 0 warnings" in text(lint_tables.reports([LintReport("b", "m.onnx", ())]))


def test_an_explanation() -> None:
    shown = text(lint_tables.explanation(explain(from_proto(conv_net()), "x", "onnxruntime")))
    assert "scale 0.05, zero point 128" in shown
    assert "integer kernel QLinearConv" in shown
    plain = text(lint_tables.explanation(explain(from_proto(conv_net()), "features")))
    assert "the model does not quantize it" in plain
