"""Tables say what they must, whatever the names in a model look like."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType

from onnxq.backend import find_backend
from onnxq.graph import from_proto
from onnxq.pass_ import Skip, Trace
from onnxq.proof.verify import verify
from onnxq.views import lint_tables, tables
from onnxq.workflows.convert import convert
from onnxq.workflows.explain import explain
from onnxq.workflows.summary import summarize
from tests.models.networks import quantized
from tests.models.zoo import ZOO


def text(view: RenderableType) -> str:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(view)
    return out.getvalue()


def test_names_are_never_read_as_markup() -> None:
    model = from_proto(ZOO["odd_names"]())
    shown = text(tables.summary(summarize(model)))
    for name, _ in summarize(model).inputs:
        assert name in shown
    trace = Trace("some-pass")
    trace.skip("[red]conv[/red]", "because of [this]")
    assert "[red]conv[/red]: because of [this]" in text(tables.traces([trace], explain=True))


def test_reasons_are_grouped() -> None:
    trace = Trace("some-pass")
    for index in range(8):
        trace.skip(f"node{index}", "it has other readers")
    shown = text(tables.traces([trace], explain=True))
    assert shown.count("it has other readers") == 1
    assert "and 3 more" in shown


def test_what_is_not_read_for_one_reason_is_one_line() -> None:
    found = summarize(from_proto(ZOO["qdq_residual"]()))
    found.unread = [Skip(f"'conv{i}'", "its scale is computed at run time") for i in range(9)]
    found.notes = [f"'conv{i}' has no range" for i in range(9)]
    shown = text(tables.summary(found))
    assert "not read: 9: 'conv0', 'conv1', 'conv2', …: its scale is computed at run time" in shown
    assert "note: 'conv0' has no range (9 alike: conv0, conv1, conv2, …)" in shown
    assert len(found.to_json()["unread"]) == len(found.to_json()["notes"]) == 9


def test_reports() -> None:
    proto = ZOO["qdq_residual"]()
    shown = text(tables.report(verify(proto, proto, per_layer=True), per_layer=True))
    assert "the models agree" in shown
    assert "0 steps" in shown


def test_logarithmic_grids_are_explained() -> None:
    model = quantized("conv1d", find_backend("nnie"))
    assert "activation logarithmic, largest magnitude 3.8994" in text(
        lint_tables.explanation(explain(model, "x", "nnie"))
    )
    assert "'x' is quantized logarithmically" in text(tables.summary(summarize(model)))


def test_numbers_are_short() -> None:
    assert [tables.number(v) for v in (0, 1, 0.123456, 1e-9)] == ["0", "1", "0.123", "1e-09"]


def test_costs_are_shown() -> None:
    model = quantized("conv1d", find_backend("onnxruntime"))
    done = convert(model, "onnxruntime", variant="qoperator")
    whole = text(tables.conversion(done, explain=False))
    assert "Cost of the changes" in whole
    assert "note: round-bias changes what the model computes: " in whole
    done = convert(model, "onnxruntime")
    assert "Cost" not in text(tables.conversion(done, explain=False))


def test_readers_of_other_dialects_are_not_listed() -> None:
    idle, busy, other = Trace("read-qonnx"), Trace("read-qdq"), Trace("drop-identity")
    busy.rewrote("x")
    shown = text(tables.traces([idle, busy, other], explain=True))
    assert "read-qdq" in shown
    assert "drop-identity" in shown  # it was asked for
    assert "read-qonnx" not in shown
