"""Findings, each with the command or setting that acts on it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onnxq.lint.rule import Finding
from onnxq.reporting.advice import Advice, advise, count
from onnxq.reporting.commands import Names
from onnxq.reporting.contents import Contents
from onnxq.reporting.network import Layer
from tests.models.reported import contents

NAMES = Names("m.onnx", "onnxruntime", source="f.onnx", data="d.npz")


def by_rule(found: tuple[Advice, ...]) -> dict[str, Advice]:
    return {advice.rule: advice for advice in found}


def layers(**changes: object) -> tuple[Layer, ...]:
    """The layers of a report, the third of them changed."""
    every = list(contents().layers)
    every[2] = replace(every[2], **changes)  # type: ignore[arg-type]
    return tuple(every)


def test_findings_of_one_kind_are_told_once() -> None:
    found = advise(
        NAMES,
        findings=[
            Finding(
                "warning", "'a' (Conv)", "missing-range", "the weight of 'a' has no range", "x"
            ),
            Finding(
                "warning", "'b' (Conv)", "missing-range", "the weight of 'b' has no range", "x"
            ),
            Finding("warning", "t", "missing-range", "the tensor has no range", "x"),
            Finding("error", "'c' (Gemm)", "gemm-bias-scale", "wrong by 2.5", "y"),
        ],
        layers=contents().layers,
    )
    assert [(a.severity, a.where) for a in found] == [
        ("error", ("c",)),
        ("warning", ("a", "b")),
        ("warning", ("t",)),
    ]
    assert found[0].command.startswith("onnxq convert m.onnx")
    assert found[1].command.startswith("onnxq quantize f.onnx")


def test_a_node_without_a_name_is_named_by_its_tensor() -> None:
    found = advise(NAMES, findings=[Finding("warning", "(Add producing 'a')", "r", "slow", "x")])
    assert found[0].where == ("a",)
    assert found[0].command == "onnxq explain m.onnx --backend onnxruntime a"


@pytest.mark.parametrize(
    ("rule", "starts"),
    [
        ("scheme", "onnxq convert m.onnx --backend onnxruntime --allow-requantize"),
        ("equal-parameters", "onnxq quantize f.onnx"),
        ("pair-saturation", "onnxq convert m.onnx --backend onnxruntime --variant avx2"),
        ("a-rule-of-a-plug-in", "onnxq explain m.onnx --backend onnxruntime stem.bn.out"),
    ],
)
def test_every_rule_of_lint_has_a_command(rule: str, starts: str) -> None:
    finding = Finding("warning", "'stem' (Conv)", rule, "something", "try --variant avx2")
    (found,) = advise(NAMES, findings=[finding], layers=contents().layers)
    assert found.command.startswith(starts)


def test_a_missing_range_is_chosen_by_a_rule_for_the_layer() -> None:
    first = Finding("warning", "stem.weight", "missing-range", "it has no range", "quantize it")
    name = next(layer.weight for layer in contents().layers if layer.name == "stem")
    (found,) = advise(NAMES, findings=[replace(first, where=name)], layers=contents().layers)
    assert json.loads(found.settings) == [["stem", {"bits": 8}]]
    assert "--settings rules.json" in found.command


def test_nothing_to_do_has_no_command() -> None:
    finding = Finding(
        "info", "'stem' (Conv)", "runs-in-float", "it does", "nothing to do: so it is"
    )
    (found,) = advise(NAMES, findings=[finding], layers=contents().layers)
    assert found.command == ""


def test_layers_that_add_noise_can_stay_float() -> None:
    found = by_rule(advise(NAMES, layers=layers(added=0.2)))["noisy-layers"]
    assert found.where == ("block.conv1",)
    assert json.loads(found.settings) == [["block.conv1", "float"]]
    assert "--settings rules.json" in found.command


def test_ranges_that_cut_off() -> None:
    every = [
        replace(each, clipped=0.1, clip_noise=0.9) if each.tensor == "stem.relu.out" else each
        for each in contents().distributions
    ]
    found = by_rule(advise(NAMES, layers=contents().layers, distributions=every))["saturated"]
    assert "10 %" in found.message
    # The rule names the layers that read the tensor.
    assert [name for name, _ in json.loads(found.settings)] == ["block.conv1", "block.add"]


def test_ranges_that_are_not_used() -> None:
    every = [replace(each, used=0.1) for each in contents().distributions if each.tensor == "image"]
    found = by_rule(advise(NAMES, layers=contents().layers, distributions=every))["few-codes"]
    assert json.loads(found.settings) == [["stem", {"method": "min-max"}]]


def test_a_range_of_an_output_has_no_rule() -> None:
    every = [
        replace(each, used=0.1) for each in contents().distributions if each.tensor == "logits"
    ]
    found = by_rule(advise(NAMES, layers=contents().layers, distributions=every))["few-codes"]
    assert found.settings == ""
    assert "--method min-max" in found.command


def test_a_loss_at_the_outputs() -> None:
    report = contents().measured.report
    assert report is not None
    low = replace(report, outputs=tuple(replace(o, sqnr=12.0) for o in report.outputs))
    found = by_rule(advise(NAMES, report=low))["low-sqnr"]
    assert "12.0 dB" in found.message
    assert "--target-sqnr 25" in found.command
    assert advise(NAMES, report=report) == ()


def test_a_float_model_is_to_be_quantized() -> None:
    plain: Contents = contents()
    every = tuple(
        replace(layer, fate=replace(layer.fate, precision="float")) for layer in plain.layers
    )
    missing = Finding("warning", "x", "missing-range", "the tensor has no range", "quantize it")
    (found,) = advise(NAMES, findings=[missing], layers=every)
    assert found.rule == "float-model"
    assert count([found]) == {"error": 0, "warning": 0, "info": 1}
