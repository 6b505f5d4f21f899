"""NNIE: one logarithmic grid, numbers by layer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.backend import TableFile, find_backend
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, logarithmic
from onnxq.canonical.upsample import UPSAMPLE
from onnxq.errors import BackendError
from onnxq.graph import Model, load
from onnxq.graph.constants import array
from onnxq.operators.placement import INPUTS_ONLY, KINDS
from onnxq.proof.verify import verify
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.side_files.nnie_inputs import UNWRITABLE
from onnxq.workflows import demo, explain, lint_model, summary
from onnxq.workflows.convert import Conversion
from onnxq.workflows.encodings import with_encodings
from tests.models.build import log_quantize, parse
from tests.models.foreign_files import FOLDER
from tests.models.networks import NETWORKS, quantized, samples

FIXTURE = FOLDER / "A1" / "mqbench-classic-nnie"
fixture = pytest.mark.skipif(not FIXTURE.exists(), reason="no ../shared/fixtures")


def numbers(done: Conversion) -> dict[str, list[float]]:
    content = done.artifacts[1].content
    assert isinstance(content, str)
    found: dict[str, list[float]] = json.loads(content)["nnie"]["gfpq_param_dict"]
    return found


def test_scheme() -> None:
    scheme = find_backend("nnie").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.algorithm == "nnie"
        assert spec.algorithm_is_grid
        assert spec.logarithmic
        assert str(spec) == "8 bits, logarithmic, per tensor"


def test_placement() -> None:
    placement = find_backend("nnie").placement
    assert replace(placement, unwritable=frozenset(), unwritable_groups=False) == INPUTS_ONLY
    assert placement.unwritable == KINDS & UNWRITABLE
    assert placement.unwritable_groups


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    model = quantized(network, find_backend("nnie"))
    done = onnxq.convert(model, "nnie", data=samples(network), stem="net")
    assert done.proven
    assert [a.suffix for a in done.artifacts] == ["_deploy_model.onnx", "_gfpq_param_dict.json"]
    assert done.proofs[0].what == "gfpq_param_dict.json (read back)"
    for proof in done.proofs:
        assert all(o.max == 0.0 for o in proof.report.outputs), proof.what
    assert not done.model.nodes(FAKE_QUANTIZE_LOG)
    for name, found in numbers(done).items():
        assert found, name
    assert not any(f.severity == "error" for f in done.findings)


def test_every_weight_lies_on_its_grid() -> None:
    model = quantized("resnet", find_backend("nnie"))
    done = onnxq.convert(model, "nnie", verify=False)
    layers = done.model.nodes("Conv", "Gemm")
    assert len(layers) == 7
    for node in layers:
        values = array(node.inputs[1])
        assert values is not None
        np.testing.assert_array_equal(logarithmic(values, float(np.abs(values).max())), values)


def test_what_the_file_cannot_say_is_named_and_measured() -> None:
    model = quantized("mobilenet", find_backend("nnie"))
    done = onnxq.convert(model, "nnie", data=samples("mobilenet"))
    (note,) = [n for n in done.notes if n.startswith("drop-unwritable-quantizers")]
    assert "(GlobalAveragePool) unrounded" in note
    assert "(Conv) unrounded" in note
    assert done.cost is not None
    assert 0 < done.cost.outputs[0].max < 0.1
    grouped = [n.name for n in done.model.nodes("Conv") if n.attrs["group"] != 1]
    assert grouped
    assert not set(grouped) & set(numbers(done))


def test_a_resize_is_an_upsample_with_two_layers() -> None:
    model = parse(
        """g (float[1,2,4,4] x) => (float[1,2,8,8] y)
        <float[2,2,1,1] w = {1, -0.3, 0.7, 0.1}, float[4] scales = {1, 1, 2, 2}>
        { c = Conv(x, w) u = Resize<mode="nearest", nearest_mode="floor",
          coordinate_transformation_mode="asymmetric">(c, , scales) y = Add(u, u) }"""
    )
    for node in model.nodes():
        node.name = f"/{node.op}"
    for name in ("x", "w", "c"):
        log_quantize(model, name, 1.3)
    done = onnxq.convert(model, "nnie")
    assert done.proven
    assert done.change is None
    assert len(done.model.nodes(UPSAMPLE)) == 1
    assert numbers(done) == {
        "/Conv": [pytest.approx(1.3)],
        "/Resize": [pytest.approx(1.3)],
        "/Resize_permute_0": [pytest.approx(1.3)],
        "/Add": [pytest.approx(1.3)] * 2,
    }


def test_linear_grids_are_refused_by_name() -> None:
    with pytest.raises(BackendError, match=r"'.*' \(activation\): a linear grid") as caught:
        onnxq.convert(demo.quantize(demo.build()), "nnie")
    assert "8 bits, logarithmic" in caught.value.fix
    assert "--allow-requantize" not in caught.value.fix


def test_a_wrong_number_is_not_proven() -> None:
    backend = find_backend("nnie")
    model, side = backend.outputs
    assert isinstance(side, TableFile)

    def write(table: QParamTable, clean: Model) -> str:
        document = json.loads(side.format.write(table, clean))
        layers = document["nnie"]["gfpq_param_dict"]
        first = next(iter(layers))
        layers[first] = [layers[first][0] / 4]
        return json.dumps(document)

    wrong = replace(side, format=replace(side.format, write=write))
    off = replace(backend, outputs=(model, wrong))
    done = onnxq.convert(quantized("conv1d", backend), off, data=samples("conv1d"))
    assert not done.proven


def test_files_written_are_read_again(tmp_path: Path) -> None:
    model = quantized("unet", find_backend("nnie"))
    done = onnxq.convert(model, "nnie", data=samples("unet"), stem="net")
    clean, side = done.save(tmp_path)
    again, notes = with_encodings(load(clean), side, backend=find_backend("nnie"))
    assert notes == ["encodings read as mqbench-nnie"]
    report = verify(model, again, samples("unet"))
    assert all(o.max == 0.0 for o in report.outputs)
    twice = onnxq.convert(load(clean), "nnie", encodings=side, data=samples("unet"))
    assert twice.proven
    assert twice.artifacts[1].content == side.read_text()
    (report_,) = lint_model.lint_path(tmp_path, "nnie")
    assert report_.findings == ()


def test_models_can_be_inspected_linted_and_explained() -> None:
    model = quantized("resnet", find_backend("nnie"))
    found = summary.summarize(model)
    assert len(found.table.logarithmic) == len(model.nodes(FAKE_QUANTIZE_LOG))
    assert all(layer.weight for layer in found.layers)
    assert found.layers[0].quantized
    assert any("'x' is quantized logarithmically" in note for note in found.notes)
    report = lint_model.lint(model, "nnie")
    assert report.passed()
    assert [f.rule for f in lint_model.lint(model, "tensorrt").findings if f.severity == "error"]
    story = explain.explain(model, "x", "nnie")
    (row,) = story.quantizers
    assert isinstance(row, LogParams)
    assert "nnie quantizes it" in story.rule
    assert story.to_json()["quantizers"][0]["data_max"] == row.data_max


@fixture
def test_the_file_is_that_of_mqbench() -> None:
    done = onnxq.convert(FIXTURE / "model.onnx", "nnie")
    assert done.proven
    theirs = json.loads((FIXTURE / "mqbench_m_gfpq_param_dict.json").read_text())
    assert numbers(done) == theirs["nnie"]["gfpq_param_dict"]
    deployed = load(FIXTURE / "mqbench_m_deploy_model.onnx")
    want = {n.name: array(n.inputs[1]) for n in deployed.nodes("Conv", "ConvTranspose", "Gemm")}
    for node in done.model.nodes("Conv", "ConvTranspose", "Gemm"):
        mine, other = array(node.inputs[1]), want.pop(node.name)
        assert mine is not None
        assert other is not None
        # MQBench leaves the rounding to the chip, which takes the largest magnitude for c.
        np.testing.assert_array_equal(logarithmic(other, float(np.abs(other).max())), mine)
    assert not want


@fixture
def test_files_of_mqbench_are_read() -> None:
    clean = load(FIXTURE / "mqbench_m_deploy_model.onnx")
    (depthwise,) = [n for n in clean.nodes("Conv") if n.attrs["group"] != 1]
    held = depthwise.inputs[1]  # without a key, nothing says that its weight is to be rounded
    held.values = logarithmic(held.values, float(np.abs(held.values).max()))
    side = FIXTURE / "mqbench_m_gfpq_param_dict.json"
    read, _ = with_encodings(clean, side, allow_missing=True)
    done = onnxq.convert(FIXTURE / "model.onnx", "nnie", verify=False)
    assert done.change is not None
    report = verify(done.change.after, read)
    assert all(o.max == 0.0 for o in report.outputs)
