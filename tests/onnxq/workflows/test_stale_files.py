from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onnxq import convert
from onnxq.backend import find_backend
from onnxq.graph import Model, save
from onnxq.workflows import demo
from onnxq.workflows.stale_files import stale_files
from tests.onnxq.conftest import Run


@pytest.fixture(scope="module")
def network() -> Model:
    return demo.quantize(demo.build())


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def touch(folder: Path, *files: str) -> None:
    for name in files:
        (folder / name).write_text("from before")


def test_what_another_variant_left_is_told(network: Model, tmp_path: Path) -> None:
    first = convert(network, "openvino", allow_requantize=True, verify=False, stem="net")
    first.save(tmp_path)
    assert first.stale == []
    second = convert(
        network, "openvino", allow_requantize=True, variant="fakequantize", verify=False, stem="net"
    )
    second.save(tmp_path)
    left = set(names(first.files)) - set(names(second.files))
    assert left
    assert set(names(second.stale)) == left
    assert all(path.exists() for path in second.stale)
    assert second.to_json()["stale"] == [str(path) for path in second.stale]
    again = convert(network, "openvino", allow_requantize=True, verify=False, stem="net")
    again.save(tmp_path)
    assert set(names(again.stale)) == set(names(second.files)) - set(names(first.files))


def test_ranges_beside_a_model_that_was_replaced_are_told(network: Model, tmp_path: Path) -> None:
    touch(tmp_path, "net_calibration.cache", "net_gfpq_param_dict.json")
    done = convert(network, "ppl", verify=False, stem="net", allow_requantize=True)
    done.save(tmp_path)
    assert names(done.stale) == ["net_calibration.cache", "net_gfpq_param_dict.json"]


def test_sets_of_other_backends_and_what_the_user_made_are_left_out(
    network: Model, tmp_path: Path
) -> None:
    touch(
        tmp_path,
        *("net_for_tengine.onnx", "net_for_tengine.scale", "net.onnx", "net_notes.txt"),
        *("other_qdq.onnx", "network_qdq.onnx"),
    )
    done = convert(network, "onnxruntime", verify=False, stem="net")
    done.save(tmp_path)
    assert done.stale == []
    assert (tmp_path / "net_notes.txt").read_text() == "from before"


def test_the_data_file_of_a_model_that_needs_none_is_told(network: Model, tmp_path: Path) -> None:
    touch(tmp_path, "net_qdq.onnx.1.data", "net_qdq.onnx.data", "net_qoperator.onnx.data")
    done = convert(network, "onnxruntime", verify=False, stem="net")
    done.save(tmp_path)
    assert names(done.stale) == [
        *("net_qdq.onnx.1.data", "net_qdq.onnx.data", "net_qoperator.onnx.data")
    ]


def test_a_backend_that_is_not_installed_knows_its_own_names(tmp_path: Path) -> None:
    private = replace(find_backend("onnxruntime"), name="private")
    touch(tmp_path, "net_qdq.onnx", "net_qoperator.onnx")
    found = stale_files(tmp_path, "net", private, [tmp_path / "net_qdq.onnx"])
    assert names(found) == ["net_qoperator.onnx"]


def test_a_stem_is_no_pattern(tmp_path: Path) -> None:
    backend = find_backend("onnxruntime")
    touch(tmp_path, "n[0]*_qoperator.onnx", "n0_qoperator.onnx")
    assert names(stale_files(tmp_path, "n[0]*", backend, [])) == ["n[0]*_qoperator.onnx"]


def test_the_command_line_names_them_and_goes_on(
    onnxq: Run, network: Model, tmp_path: Path
) -> None:
    save(network, tmp_path / "net.onnx")
    out = tmp_path / "out"
    words = ("convert", tmp_path / "net.onnx", "-b", "onnxruntime", "-o", out, "--no-verify")
    assert onnxq(*words, "--variant", "qoperator")[0] == 0
    code, told, _ = onnxq(*words)
    assert code == 0
    assert "net_qoperator.onnx' does not belong to this conversion" in " ".join(told.split())
    assert (out / "net_qoperator.onnx").exists()
    code, told, _ = onnxq(*words, "--json")
    assert (code, json.loads(told)["stale"]) == (0, [str(out / "net_qoperator.onnx")])
