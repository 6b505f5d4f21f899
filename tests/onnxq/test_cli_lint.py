"""`onnxq lint` and `onnxq explain` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.lint_cases import conv_net, gemm_net
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
    assert onnxq("lint", model, "-b", "onnxruntime", "--strict")[0] == 1


def test_lint_fails_on_errors(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", gemm_net(2.0))
    code, out, _ = onnxq("lint", model, "-b", "onnxruntime", "--json")
    assert code == 1
    (report,) = json.loads(out)
    assert report["findings"][0]["rule"] == "gemm-bias-scale"


def test_convert_tells_and_lint_reads_its_folder(onnxq: Run, tmp_path: Path) -> None:
    model = write(tmp_path / "m.onnx", conv_net(weight_codes=127))
    folder = tmp_path / "out"
    code, out, _ = onnxq("convert", model, "-b", "onnxruntime", "-o", folder)
    assert code == 0
    assert "unsafe on AVX2" in out
    code, out, _ = onnxq("lint", folder, "-b", "onnxruntime")
    assert code == 0
    assert "m_qdq.onnx" in out


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
