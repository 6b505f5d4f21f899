"""A backend is a value; one that could not be run cannot be made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.formats import tensorrt_cache, tensorrt_ranges
from onnxq.pipeline import Pipeline
from onnxq.placement import INPUTS_ONLY
from onnxq.scheme import QSpec, Scheme

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
        Pipeline.parse("drop-identity,to-qdq{opset=21}"),
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
        "lint": [],
    }


def test_listing_tells_quantized_biases() -> None:
    biased = Scheme(SCHEME.weight, SCHEME.activation, bias=QSpec(("int32",), symmetric=True))
    assert backend(MODEL, scheme=biased).to_json()["bias"] == str(biased.bias)


def test_the_proof_runs_in_the_reference_session_unless_told_otherwise() -> None:
    assert backend(MODEL).sessions == ("reference",)
    assert backend(MODEL, sessions=("deployed",)).sessions == ("deployed",)


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ((), "what is written is proven, and only that"),
        ((RANGES, CLEAN), "the first output must be an OnnxFile"),
        ((MODEL, RANGES), "'_ranges.json' stands beside '_clean.onnx'"),
        ((MODEL, CLEAN, MODEL), "two outputs have the same suffix"),
        (
            (CLEAN, RANGES, TableFile("_ranges.json", tensorrt_cache.FORMAT, "_clean.onnx")),
            "two outputs have the same suffix",
        ),
        (
            (CLEAN, RANGES, TableFile("_b.json", tensorrt_ranges.FORMAT, beside="_ranges.json")),
            "which is not among its models",
        ),
    ],
)
def test_outputs_that_do_not_fit_together(
    outputs: tuple[OnnxFile | TableFile, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=f"^backend 'chip': .*{why}"):
        backend(*outputs)


def test_a_target_may_be_trained_for_before_it_has_a_writer() -> None:
    made = Backend("chip", "a chip", SCHEME)
    assert not made.writes
    shown = made.to_json()
    assert (shown["writes"], shown["outputs"], shown["proof"]) == (False, [], None)
    assert made.placement == INPUTS_ONLY


def test_a_proof_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="what is written is proven"):
        Backend("chip", "a chip", SCHEME, outputs=(MODEL,))
