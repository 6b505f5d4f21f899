"""The report on what a conversion or a quantization made."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.workflows.convert import convert
from onnxq.workflows.quantize import quantize
from tests.models.build import quantize as put
from tests.models.reported import float_network, images, quantized_network


def test_a_conversion_is_compared_with_its_source() -> None:
    done = convert(quantized_network(), "tensorrt")
    found = done.full_report(images(1)).contents
    assert found.proven
    assert found.worst_output is not None
    assert found.worst_output.sqnr > 60  # it computes the same
    assert found.recasts == ()
    assert "proven" in done.report_html(images(1))


def test_side_files_are_a_part_of_the_model() -> None:
    found = convert(quantized_network(), "rknn", verify=False).full_report(images(1)).contents
    assert {layer.quantizer for layer in found.layers} > {""}
    assert any(each.grid is not None for each in found.distributions)


def test_a_quantization_is_compared_with_the_float_model(tmp_path: Path) -> None:
    done = quantize(float_network(), "tensorrt", images(2), method="min-max", stem="m")
    done.save(tmp_path)
    found = done.full_report(images(1)).contents
    assert found.names.model.endswith("m_qdq.onnx")
    assert found.worst_output is not None
    assert 20 < found.worst_output.sqnr < 60
    assert sum(layer.sqnr is not None for layer in found.layers) > 10


def test_another_model_to_compare_with() -> None:
    done = convert(quantized_network(), "onnxruntime", verify=False)
    found = done.full_report(images(2), against=float_network(), samples=1).contents
    assert found.measured.samples == 1
    assert found.worst_output is not None
    assert found.worst_output.sqnr < 60


def test_the_cost_of_a_recast_is_shown() -> None:
    model = quantized_network().clone()
    put(model, "gap.out", qtype="uint8", scale=0.013, zero_point=100)  # TensorRT has none
    done = convert(model, "tensorrt", allow_requantize=True, count=1)
    assert done.change is not None
    made = done.full_report(images(1))
    assert made.contents.changes
    assert made.contents.cost is not None
    (moved,) = (each for each in made.contents.recasts if each.tensor == "gap.out")
    assert moved.sqnr == pytest.approx(40, abs=15)
    assert "Cost of the changes" in made.html
