"""`onnxq lint` and `onnxq explain` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from onnxq.graph import save
from onnxq.running.cpu import Cpu
from onnxq.workflows import demo, reported
from tests.models.lint_cases import conv_net, gemm_net
from tests.onnxq.conftest import Run


def write(path: Path, proto: onnx.ModelProto) -> Path:
    path.write_bytes(proto.SerializeToString())
    return path


def test_lint_passes_with_warnings_unless_strict(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", conv_net(weight_codes=127))
    code, out, err = onnxq("lint", model, "--backend", "onnxruntime")
    assert (code, err) == (0, "")
    assert "unsafe on AVX2" in out
    assert "0 errors, 1 warning" in out
    code, strict, _ = onnxq("lint", model, "-b", "onnxruntime", "--strict")
    assert (code, strict) == (1, out)


def test_lint_fails_on_errors(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", gemm_net(2.0))
    code, out, _ = onnxq("lint", model, "-b", "onnxruntime", "--json")
    assert code == 1
    (report,) = json.loads(out)
    assert report["findings"][0]["rule"] == "gemm-bias-scale"


OLD = Cpu("old", "x86_64", frozenset({"avx2"}))
NEW = Cpu("new", "x86_64", frozenset({"avx2", "avx512_vnni"}))
ARM = Cpu("arm", "aarch64", frozenset({"asimddp"}))


@pytest.mark.parametrize(("cpu", "concerned"), [(OLD, True), (NEW, False), (ARM, False)])
def test_convert_tells_what_concerns_this_cpu_and_lint_all(
    onnxq: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Cpu, concerned: bool
) -> None:
    monkeypatch.setattr(reported, "this_cpu", lambda: cpu)
    model = write(tmp_path / "m.onnx", conv_net(weight_codes=127))
    folder = tmp_path / "out"
    words = ("convert", model, "-b", "onnxruntime", "-o", folder)
    code, out, _ = onnxq(*words)
    assert code == 0
    assert ("unsafe on AVX2" in out) == concerned
    assert "unsafe on AVX2" in onnxq(*words, "--no-verify", "--explain")[1]
    found = json.loads(onnxq(*words, "--no-verify", "--json")[1])
    assert any("unsafe on AVX2" in each["message"] for each in found["findings"])
    code, out, _ = onnxq("lint", folder, "-b", "onnxruntime")
    assert code == 0
    assert "unsafe on AVX2" in out
    assert "m_qdq.onnx: 0 errors, 1 warning" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("lint", "{m}", "-b", "onnxruntim"), "did you mean 'onnxruntime'"),
        (("lint", "{t}/none.onnx", "-b", "onnxruntime"), "none.onnx"),
        (("lint", "{t}", "-b", "onnxruntime"), "was not written by"),
        (("explain", "{m}", "actve"), "did you mean 'active'"),
    ],
)
def test_bad_usage(onnxq: Run, tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    model = write(tmp_path / "m.onnx", conv_net())
    code, out, err = onnxq(*(w.format(m=model, t=tmp_path) for w in words))
    assert (code, out) == (2, "")
    assert text in err
    assert "  next: " in err


def test_explain(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", conv_net())
    code, out, _ = onnxq("explain", model, "active", "-b", "onnxruntime")
    assert code == 0
    assert "onnxruntime quantizes it" in out
    code, out, _ = onnxq("explain", model, "features", "-b", "onnxruntime", "--json")
    assert json.loads(out)["quantizers"] == []


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A canonical model, which is looked at as it will be written."""
    path = tmp_path / "net.onnx"
    save(demo.quantize(demo.build()), path)
    return path


def test_lint_looks_at_a_variant(onnxq: Run, network: Path) -> None:
    words = ("lint", network, "-b", "onnxruntime", "--json")
    (own,) = json.loads(onnxq(*words)[1])
    (safe,) = json.loads(onnxq(*words, "--variant", "avx2")[1])
    assert "unsafe on AVX2" in own["findings"][0]["message"]
    assert own["counts"]["warning"] == 1
    assert "safe on AVX2 without VNNI: no input" in safe["findings"][0]["message"]
    assert "warning" not in safe["counts"]


def test_lint_looks_at_the_files_of_a_variant(onnxq: Run, network: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for more in ((), ("--variant", "qoperator")):
        onnxq("convert", network, "-b", "onnxruntime", "-o", folder, "--no-verify", *more)
    words = ("lint", folder, "-b", "onnxruntime", "--json")
    assert len(json.loads(onnxq(*words)[1])) == 2
    (report,) = json.loads(onnxq(*words, "--variant", "qoperator")[1])
    assert report["model"] == str(folder / "net_qoperator.onnx")
    (report,) = json.loads(onnxq(*words, "--variant", "avx2")[1])
    assert report["model"] == str(folder / "net_qdq.onnx")


def test_explain_looks_at_a_variant(onnxq: Run, network: Path) -> None:
    words = ("explain", network, "stem.relu.out", "--json")
    for more in ((), ("--variant", "qoperator")):
        found = json.loads(onnxq(*words, "-b", "onnxruntime", *more)[1])
        assert [use["fate"] for use in found["uses"]] == [
            "integer kernel QLinearConv",
            "integer kernel QLinearAdd",
        ]
    code, _, err = onnxq(*words, "--variant", "qoperator")
    assert code == 2
    assert "give a backend" in err


@pytest.mark.parametrize("words", [("lint",), ("explain", "stem.relu.out")])
def test_an_unknown_variant(onnxq: Run, network: Path, words: tuple[str, ...]) -> None:
    code, _, err = onnxq(words[0], network, *words[1:], "-b", "onnxruntime", "--variant", "avx512")
    assert code == 2
    assert "no variant 'avx512'" in err
