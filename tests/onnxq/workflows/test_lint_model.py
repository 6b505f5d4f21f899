"""Looking at models and at folders that were converted, for any backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from onnxq import discovery
from onnxq.backend import backends, find_backend
from onnxq.errors import LoadError
from onnxq.graph import from_proto, save
from onnxq.lint.rule import Finding, LintRule, Subject
from onnxq.reading import canonical
from onnxq.workflows.convert import convert
from onnxq.workflows.lint_model import lint, lint_path
from tests.models.lint_cases import conv_net, gemm_net
from tests.models.networks import quantized
from tests.models.zoo import ZOO


def test_errors_come_first_and_decide() -> None:
    report = lint(from_proto(gemm_net(2.0)), "onnxruntime")
    assert report.findings[0].severity == "error"
    assert not report.passed()
    document = report.to_json()
    assert document["passed"] is False
    assert document["counts"]["error"] == 1
    assert set(document["findings"][0]) == {"severity", "where", "rule", "message", "fix"}


def test_warnings_decide_only_where_asked() -> None:
    report = lint(from_proto(conv_net(weight_codes=127)), "onnxruntime")
    assert report.count("warning") == 1
    assert report.passed()
    assert not report.passed(strict=True)
    assert lint(from_proto(conv_net()), "onnxruntime").passed(strict=True)


def test_a_canonical_model_is_looked_at_as_it_will_be_written() -> None:
    given = from_proto(conv_net(relu_zero=128))
    assert "runs-in-float" in {f.rule for f in lint(given, "onnxruntime").findings}
    # Conversion moves the zero point to the lowest code, behind which Conv and Relu fuse.
    read, _ = canonical(given)
    assert "runs-in-float" not in {f.rule for f in lint(read, "onnxruntime").findings}


def test_a_folder_that_convert_wrote(tmp_path: Path) -> None:
    done = convert(from_proto(conv_net(weight_codes=127)), "onnxruntime", verify=False, stem="net")
    done.save(tmp_path)
    (report,) = lint_path(tmp_path, "onnxruntime")
    assert report.model.endswith("net_qdq.onnx")
    assert {f.rule for f in report.findings} == {f.rule for f in done.findings}
    assert done.to_json()["findings"] == [f.to_json() for f in done.findings]


def test_a_folder_with_a_variant(tmp_path: Path) -> None:
    model = from_proto(conv_net(weight_codes=127))
    convert(model, "onnxruntime", variant="qoperator", verify=False, stem="a").save(tmp_path)
    convert(model, "onnxruntime", variant="avx2", verify=False, stem="b").save(tmp_path)
    by_name = {Path(r.model).name: r for r in lint_path(tmp_path, "onnxruntime")}
    assert set(by_name) == {"a_qoperator.onnx", "b_qdq.onnx"}
    unsafe = {name for name, r in by_name.items() if r.count("warning")}
    assert unsafe == {"a_qoperator.onnx"}


def test_another_folder_is_refused(tmp_path: Path) -> None:
    save(from_proto(conv_net()), tmp_path / "net.onnx")
    with pytest.raises(LoadError, match=r"was not written by 'onnxq convert' for onnxruntime"):
        lint_path(tmp_path, "onnxruntime")
    assert len(lint_path(tmp_path / "net.onnx", "onnxruntime")) == 1


@pytest.mark.parametrize("name", ["snpe", "vitis", "ppl-cuda"])
def test_a_clean_model_is_looked_at_with_its_side_file(tmp_path: Path, name: str) -> None:
    backend = find_backend(name)
    done = convert(quantized("resnet", backend), backend, verify=False, stem="net")
    done.save(tmp_path)
    (report,) = lint_path(tmp_path, backend)
    assert report.model.endswith(".onnx")
    assert {(f.rule, f.where) for f in report.findings} == {
        (f.rule, f.where) for f in done.findings
    }
    assert bool(report.findings) == (name == "vitis")  # whose biases are float


def _no_conv(subject: Subject) -> Iterator[Finding]:
    for node in subject.canonical.nodes("Conv"):
        yield Finding("warning", node.name, "no-conv", "mychip has no Conv", "use another chip")


def test_a_backend_brings_rules_of_its_own() -> None:
    rule = LintRule("no-conv", "operators that mychip lacks", _no_conv)
    chip = replace(find_backend("tensorrt"), name="mychip", lint=(rule,))
    found = [f for f in lint(from_proto(conv_net()), chip).findings if f.rule == "no-conv"]
    assert len(found) == 1
    assert chip.to_json()["lint"] == [{"name": rule.name, "summary": rule.summary}]


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_model_can_be_looked_at_for_every_backend(name: str) -> None:
    for backend in backends().values():
        assert not isinstance(backend, discovery.Broken)
        report = lint(from_proto(ZOO[name]()), backend)
        for finding in report.findings:
            assert finding.where
            assert finding.message
            assert finding.fix
