"""What becomes of onnxruntime's messages."""

from __future__ import annotations

import pytest

from onnxq.errors import InvalidModelError, LoadError, OnnxqError, UnsupportedModelError
from onnxq.running.ort_errors import ort_errors, reason, refusal

SHARED = (
    "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /onnxruntime_src/core/"
    "graph_utils.cc:479 onnxruntime::NodeArg& onnxruntime::AddInitializer(onnxruntime::Graph&) "
    "[ONNXRuntimeError] : 1 : FAIL : graph.cc:4142 Attempt to replace the existing tensor\n"
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (SHARED, "graph.cc:4142 Attempt to replace the existing tensor"),
        (
            "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: x\n"
            " index: 1 Got: 4 Expected: 3\n Please fix either the inputs/outputs or the model.",
            "Got invalid dimensions for input: x index: 1 Got: 4 Expected: 3",
        ),
        (
            "[ONNXRuntimeError] : 3 : NO_SUCHFILE : Load model from /a b/m.onnx failed:File gone",
            "File gone",
        ),
        ("plain", "plain"),
    ],
)
def test_messages_are_one_clean_line(text: str, clean: str) -> None:
    assert reason(RuntimeError(text)) == clean


def test_long_messages_keep_both_ends() -> None:
    text = reason(RuntimeError("node 'a' " + "x" * 1000 + " is wrong"))
    assert len(text) < 320
    assert text.startswith("node 'a'")
    assert text.endswith("is wrong")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("qonnx:Quant(-1) is not a registered function/op", UnsupportedModelError),
        ("This is an invalid model. In Node x, No Op registered for Foo", UnsupportedModelError),
        ("Unsupported model IR version: 14, max supported IR version: 13", UnsupportedModelError),
        ("Could not find an implementation for Identity(21) node", UnsupportedModelError),
        ("This is an invalid model. Type Error: Type 'tensor(int32)'", InvalidModelError),
        ("External data path does not exist: w.bin", LoadError),
        ("something new", UnsupportedModelError),
    ],
)
def test_refusals_have_a_kind_and_a_next_step(text: str, kind: type[OnnxqError]) -> None:
    error = refusal("'m.onnx'", RuntimeError(text))
    assert type(error) is kind
    assert "'m.onnx'" in error.what
    assert text in error.what
    assert error.fix


def test_every_class_of_onnxruntime_is_known() -> None:
    names = {c.__name__ for c in ort_errors()}
    assert {"Fail", "InvalidGraph", "NotImplemented", "InvalidArgument", "NoSuchFile"} <= names
