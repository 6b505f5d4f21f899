"""A backend is a value; one that could not be run cannot be made."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from onnxq.backend import Backend, OnnxFile, TableFile, Variant, find_backend
from onnxq.errors import OptionError
from onnxq.formats import mqbench_ppl_cuda, tensorrt_cache, tensorrt_ranges
from onnxq.operators.placement import INPUTS_ONLY
from onnxq.pass_ import Pass
from onnxq.pipeline import Pipeline
from onnxq.quant.scheme import QSpec, Scheme
from passes.quantize_bias import QuantizeBias
from passes.to_qdq import ToQdq

SCHEME = Scheme(
    weight=QSpec(("int8",), symmetric=True, per_channel=True), activation=QSpec(("uint8",))
)
MODEL = OnnxFile("_qdq.onnx", Pipeline(), "the model")
CLEAN = OnnxFile("_clean.onnx", Pipeline(), "without quantizers")
RANGES = TableFile("_ranges.json", tensorrt_ranges.FORMAT, beside="_clean.onnx")


def backend(*outputs: OnnxFile | TableFile, **more: Any) -> Backend:
    return Backend(
        "chip",
        "a chip",
        more.pop("scheme", SCHEME),
        more.pop("pipeline", Pipeline.parse("drop-identity,to-qdq{opset=21}")),
        outputs,
        proof="format",
        **more,
    )


def test_listing_is_json() -> None:
    made = backend(MODEL, CLEAN, RANGES)
    assert json.loads(json.dumps(made.to_json())) == {
        "name": "chip",
        "summary": "a chip",
        "weight": str(SCHEME.weight),
        "activation": str(SCHEME.activation),
        "bias": "float",
        "writes": True,
        "pipeline": "drop-identity,to-qdq{opset=21}",
        "outputs": [
            {"suffix": "_qdq.onnx", "summary": "the model"},
            {"suffix": "_clean.onnx", "summary": "without quantizers"},
            {"suffix": "_ranges.json", "summary": tensorrt_ranges.FORMAT.summary},
        ],
        "proof": "format",
        "consumers": [],
        "lint": [],
        "variants": {},
    }


def test_listing_tells_quantized_biases() -> None:
    biased = Scheme(SCHEME.weight, SCHEME.activation, bias=QSpec(("int32",), symmetric=True))
    made = backend(MODEL, scheme=biased, pipeline=Pipeline(QuantizeBias()))
    assert made.to_json()["bias"] == str(biased.bias)


def test_the_proof_runs_in_the_reference_session_unless_told_otherwise() -> None:
    assert backend(MODEL).sessions == ("reference",)
    assert backend(MODEL, sessions=("deployed",)).sessions == ("deployed",)


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ((RANGES, CLEAN), "the first output must be an OnnxFile"),
        ((MODEL, RANGES), "'_ranges.json' belongs to '_clean.onnx'"),
        ((CLEAN, RANGES, replace(RANGES, suffix="_old.json", legacy=True)), "cannot be left out"),
        ((MODEL, CLEAN, MODEL), "two outputs have the same suffix"),
        (
            (CLEAN, RANGES, TableFile("_ranges.json", tensorrt_cache.FORMAT, "_clean.onnx")),
            "two outputs have the same suffix",
        ),
        (
            (CLEAN, RANGES, TableFile("_b.json", tensorrt_ranges.FORMAT, beside="_ranges.json")),
            "which is not one of its models",
        ),
    ],
)
def test_outputs_that_do_not_fit_together(
    outputs: tuple[OnnxFile | TableFile, ...], why: str
) -> None:
    with pytest.raises(OptionError, match=f"^backend 'chip': .*{why}"):
        backend(*outputs)


def test_a_target_may_be_trained_for_before_it_has_a_writer() -> None:
    made = Backend("chip", "a chip", SCHEME)
    assert not made.writes
    shown = made.to_json()
    assert (shown["writes"], shown["outputs"], shown["proof"]) == (False, [], None)
    assert made.placement == INPUTS_ONLY


def test_a_proof_of_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="written files need a level of proof") as caught:
        Backend("chip", "a chip", SCHEME, outputs=(MODEL,))
    assert "add proof='format'" in caught.value.fix
    with pytest.raises(OptionError, match="only written files have one") as caught:
        Backend("chip", "a chip", SCHEME, proof="format")
    assert "leave out proof= and sessions=" in caught.value.fix


def test_a_file_needs_an_ending() -> None:
    with pytest.raises(OptionError, match="suffix='tiny' does not end") as caught:
        OnnxFile("tiny", Pipeline(), "a model")
    assert "'_tiny.onnx'" in caught.value.fix


def test_a_clean_model_needs_a_file_that_tells_its_quantization() -> None:
    clean = replace(CLEAN, clean=True)
    assert backend(clean, RANGES).outputs[0] == clean
    with pytest.raises(OptionError, match=r"no file contains the quantization of '_clean\.onnx'"):
        backend(clean)
    reach = TableFile("_reach.txt", mqbench_ppl_cuda.FORMAT, beside="_clean.onnx")
    with pytest.raises(OptionError, match="no file contains"):
        backend(clean, reach)
    assert backend(clean, reach, RANGES).writes


# -- variants ----------------------------------------------------------------------------------

LONGER = Pipeline.parse("drop-identity,to-qdq{opset=13}")


def varied() -> Backend:
    return backend(
        MODEL,
        variants={
            "longer": Variant("another way there", pipeline=LONGER),
            "clean": Variant("other files", outputs=(CLEAN, RANGES)),
        },
    )


def test_a_variant_differs_in_what_it_names() -> None:
    made = varied()
    longer, clean = made.variant("longer"), made.variant("clean")
    assert (longer.pipeline, longer.outputs) == (LONGER, made.outputs)
    assert (clean.pipeline, clean.outputs) == (made.pipeline, (CLEAN, RANGES))
    assert longer.name == clean.name == made.name
    assert hash(made) != hash(longer)


def test_an_unknown_variant_lists_near_matches() -> None:
    with pytest.raises(OptionError, match="backend 'chip' has no variant 'long'") as caught:
        varied().variant("long")
    assert "'longer'" in caught.value.fix
    with pytest.raises(OptionError) as caught:
        backend(MODEL).variant("long")
    assert caught.value.fix == "leave the variant out"


def test_variants_are_listed() -> None:
    shown = json.loads(json.dumps(varied().to_json()))["variants"]
    assert shown["longer"]["pipeline"] == str(LONGER)
    assert shown["longer"]["outputs"] == [{"suffix": "_qdq.onnx", "summary": "the model"}]
    assert [o["suffix"] for o in shown["clean"]["outputs"]] == ["_clean.onnx", "_ranges.json"]


def test_outputs_of_a_variant_that_do_not_fit_together() -> None:
    with pytest.raises(OptionError, match=r"^backend 'chip': .*'_ranges.json' belongs to"):
        backend(MODEL, variants={"bad": Variant("x", outputs=(MODEL, RANGES))})


@pytest.mark.parametrize(
    ("short", "name"), [("ort", "onnxruntime"), ("TRT", "tensorrt"), ("ov", "openvino")]
)
def test_a_short_name_leads_to_its_backend(short: str, name: str) -> None:
    with pytest.raises(OptionError, match=f"unknown backend '{short}'") as error:
        find_backend(short)
    assert str(error.value.fix).startswith(f"did you mean '{name}'")


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [
        ({"proof": "formats"}, "choose 'consumer' or 'format'"),
        ({"sessions": ("reference", "deploy")}, "'deployed'"),
        ({"sessions": "reference"}, "give a tuple of 'reference'"),
        ({"outputs": MODEL}, "(OnnxFile(...),)"),
        ({"lint": (print,)}, "(LintRule(name, summary, check),)"),
        ({"placement": None}, "leave it out"),
        ({"pipeline": ()}, "give a Pipeline"),
        ({"scheme": None}, "give a Scheme"),
    ],
)
def test_fields_of_other_kinds_are_refused(wrong: dict[str, Any], fix: str) -> None:
    with pytest.raises(OptionError, match=f"backend 'chip': {next(iter(wrong))}=") as caught:
        replace(backend(MODEL), **wrong)
    assert fix in caught.value.fix


INT32 = QSpec(("int32",), symmetric=True)


@pytest.mark.parametrize(
    ("passes", "written", "why", "fix"),
    [
        ((), ToQdq(bias="int32"), "has no pass that makes their codes", "put QuantizeBias()"),
        ((), ToQdq(bias="float"), "writes them as floats", 'write ToQdq(bias="int32")'),
        ((QuantizeBias(),), ToQdq(bias="float"), "writes them as floats", 'ToQdq(bias="int32")'),
    ],
)
def test_biases_of_the_scheme_are_those_of_the_files(
    passes: tuple[Pass, ...], written: Pass, why: str, fix: str
) -> None:
    scheme = replace(SCHEME, bias=INT32)
    outputs = (OnnxFile("_a.onnx", Pipeline(written), "a model"),)
    with pytest.raises(OptionError, match=f"int32 biases, and it {why}") as caught:
        backend(*outputs, scheme=scheme, pipeline=Pipeline(*passes))
    assert fix in caught.value.fix


def test_a_scheme_takes_specs() -> None:
    with pytest.raises(OptionError, match="Scheme: weight='int8'") as caught:
        Scheme("int8", SCHEME.activation)  # type: ignore[arg-type]
    assert caught.value.fix == 'give a QSpec(("int8",))'


def test_a_range_fits_the_type() -> None:
    with pytest.raises(OptionError, match=r"range -200\.\.100 does not fit int8"):
        QSpec(("int8",), lo=-200, hi=100)
