"""Public objects of a large model, as `print`, `repr`, rich and notebooks show them."""

from __future__ import annotations

import importlib
import inspect
import io
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import onnxq
from onnxq.backend import find_backend
from onnxq.graph import Model
from onnxq.lint import Finding, LintRule, Subject
from onnxq.pass_ import Option, Pass, Quoted, Skip, Trace
from onnxq.pipeline import Dump, Observer, Pipeline, Timing
from onnxq.quant import LogParams, QParams, QParamTable, Role, qtype
from onnxq.quant.settings import Settings
from onnxq.side_files import find_format
from onnxq.timing.rounds import Spread
from onnxq.views.shown_result import MOST_LINES, ShownResult
from onnxq.workflows.bench import Bench, Latency
from onnxq.workflows.calibrate import calibrate
from onnxq.workflows.explain import explain
from onnxq.workflows.lint_model import lint
from onnxq.workflows.side_export import export_side_file
from onnxq.workflows.summary import summarize
from passes.apply_qparams import ApplyQParams
from passes.to_qdq import ToQdq
from tests.models.build import parse_filled

DEEP = 60
"""Layers: enough for every list to be long."""
WIDE = 40


NAMES = ["x", *(f"backbone_stage{i // 9}_block{i}_projection" for i in range(DEEP))]


def deep(layer: str, outputs: int) -> Model:
    """Many layers with long names, and as many outputs as asked for."""
    layers = "".join(
        layer.format(read=read, made=made, i=i) for i, (read, made) in enumerate(pairwise(NAMES))
    )
    ends = ", ".join(f"float[1,{WIDE}] {name}" for name in NAMES[-outputs:])
    return parse_filled(
        f"deep (float[1,{WIDE}] x) => ({ends}) {{ {layers} }}",
        **{f"w{i}": (WIDE, WIDE) for i in range(DEEP)},
    )


def quantized() -> Model:
    """Many layers, channels of their own scales, and many outputs."""
    model = deep("{made} = MatMul ({read}, w{i}) ", 30)
    scales = np.linspace(0.02, 0.05, WIDE).astype(np.float32)
    zeros = np.zeros(WIDE)
    rows = [QParams(n, qtype("int8"), np.float32(0.1), np.zeros(())) for n in NAMES]
    rows += [
        QParams(f"w{i}", qtype("int8"), scales, zeros, axis=1, role=Role.WEIGHT, lo=-127)
        for i in range(DEEP)
    ]
    model.qparams = QParamTable(rows)
    return Pipeline(ApplyQParams()).run(model).model


@pytest.fixture(scope="module")
def shown() -> list[Any]:
    """An object of every public class, as large as they come."""
    model = quantized()
    result = Pipeline.parse("unify-scales,collect-qparams").run(model)
    done = onnxq.convert(model, "tensorrt", count=1)
    done.notes += [f"note {i} about something" for i in range(50)]
    feeds = [{"x": np.random.default_rng(i).normal(size=(1, WIDE)).astype("f")} for i in range(3)]
    long = deep("m{i} = MatMul ({read}, w{i}) {made} = Tanh (m{i}) ", 1)
    quantization = onnxq.quantize(long, "onnxruntime", feeds, measure_latency=False)
    rules = Settings.of([[f"layer{i}", "float"] for i in range(DEEP)])
    spread = Spread(1.0, 0.9, 1.1)
    latency = Latency("m" * 70, spread, spread, 9, ("x",), False, 1, 1, None)
    backend = find_backend("tensorrt")
    table = result.model.qparams
    return [
        *(model, result, result.traces[0], done, done.report, done.proofs[0], done.artifacts[0]),
        *(table, table.rows[0], table.rows[-1], table.rows[-1].qtype, table.rows[0].role),
        *(onnxq.verify(model, done.model, count=1, per_layer=True), done.subject, backend),
        export_side_file(model, "onnxq", verify=False),
        onnxq.report(done.model, count=1),
        Bench((latency,) * 4, 1, 9, ["a note"] * 3),
        onnxq.doctor(),
        *(
            quantization,
            quantization.noise,
            quantization.recipe,
            replace(quantization.recipe, settings=rules),
            rules,
        ),
        calibrate(long, feeds, backend="onnxruntime"),
        *(lint(model, "onnxruntime"), summarize(model), explain(model, "x", "tensorrt")),
        *(backend.pipeline, backend.scheme, backend.scheme.weight, backend.placement),
        *find_backend("onnxruntime").variants.values(),
        *backend.outputs,
        *(find_format("aimet-1.0.0"), LogParams("x", 2.0), Finding("error", "a", "b", "c", "d")),
        *(find_backend("onnxruntime").lint[0], ToQdq(), ToQdq.options()["opset"], Quoted("a")),
        *(Skip("where", "why"), Dump(Path("folder")), Timing()),
    ]


def test_every_public_class_is_here(shown: list[Any]) -> None:
    text = Path(__file__).parents[2].joinpath("docs", "api.md").read_text(encoding="utf-8")
    public: set[type] = set()
    for module in re.findall("^## (.+)$", text, re.MULTILINE):
        home = importlib.import_module(module)
        things = (getattr(home, name) for name in getattr(home, "__all__", ()))
        public |= {t for t in things if inspect.isclass(t) and not issubclass(t, Exception)}
    made = tuple(type(each) for each in shown)
    protocols = {Observer}
    assert {c.__name__ for c in public - protocols if not any(issubclass(m, c) for m in made)} == (
        set()
    )
    assert {Trace, Subject, Option, Pass, LintRule} <= public


def test_printing_fits_a_screen(shown: list[Any]) -> None:
    for each in shown:
        for text in (str(each), repr(each)):
            rows = sum(max(1, -(-len(line) // 100)) for line in text.splitlines())
            assert 1 <= rows <= MOST_LINES, (type(each), text)


def test_results_are_one_line_as_repr_and_tables_elsewhere(shown: list[Any]) -> None:
    results = [each for each in shown if isinstance(each, ShownResult)]
    kinds = {type(each).__name__ for each in results}
    assert kinds >= {"Model", "QParamTable", "Report", "Conversion", "Quantization", "Bench"}
    assert kinds >= {"Recipe", "Statistics", "LintReport", "Summary", "Explanation", "Checkup"}
    for each in results:
        assert len(repr(each).splitlines()) == 1
        assert len(repr(each)) < 400
        out = io.StringIO()
        Console(file=out, width=100).print(each)
        assert len(out.getvalue()) > len(repr(each))
        page = each._repr_html_()
        assert page.startswith("<pre")
        assert page.endswith("</pre>")


def test_a_name_does_not_become_markup() -> None:
    table = QParamTable([QParams("<b>[red]x", qtype("int8"), np.float32(0.1), np.zeros(()))])
    assert "<b>[red]x" in str(table)
    assert "<b>" not in table._repr_html_()
    assert "&lt;b&gt;[red]x" in table._repr_html_()


def test_a_conversion_makes_its_page() -> None:
    model = quantized()
    done = onnxq.convert(model, "tensorrt", verify=False)
    assert "</html>" in done.report_html()


def test_packages_are_typed() -> None:
    for package in ("onnxq", "passes", "torch_bridge"):
        assert Path(__file__).parents[2].joinpath(package, "py.typed").is_file()
