"""Explains onnxruntime's errors in one sentence with a next step."""

from __future__ import annotations

import re

from onnxq.errors import InvalidModelError, LoadError, OnnxqError, UnsupportedModelError

_STATUS = re.compile(r".*\[ONNXRuntimeError\] : \d+ : \w+ : ")
_LOAD = re.compile(r"^Load model from .*? failed: ?")
# A C++ source position, with the signature of the function if one follows.
_SOURCE = re.compile(
    r"(?:[\w:<>&*, ]+\([^()]*\) )?/onnxruntime_src/\S+\s+(?:[\w:&* ]+::[^()]*\([^()]*\) )?"
)
_LONGEST = 300

_CHECK_FILE = "check that the file is complete and really an ONNX model"
_READ_DIALECT = (
    "convert this dialect to the canonical form and run that: onnxq run MODEL -p PASS -o "
    "NEW.onnx, with the pass that reads it (read-mqbench, read-qonnx, ...: 'onnxq passes')"
)
_REFUSALS: tuple[tuple[str, type[OnnxqError], str], ...] = (
    ("External data", LoadError, "copy the external data file next to the model"),
    ("rotobuf parsing failed", LoadError, _CHECK_FILE),
    ("No graph was found", LoadError, _CHECK_FILE),
    ("is not a registered function/op", UnsupportedModelError, _READ_DIALECT),
    ("No Op registered for", UnsupportedModelError, _READ_DIALECT),
    ("opset import", InvalidModelError, "add the domain to the model's opset imports"),
    ("IR version", UnsupportedModelError, "save the model with an older IR version"),
    ("opset", UnsupportedModelError, "save the model with an opset that onnxruntime supports"),
    ("implementation for", UnsupportedModelError, "use a type for which onnxruntime has a kernel"),
    ("find kernel for", UnsupportedModelError, "use a type for which onnxruntime has a kernel"),
    ("Type Error", InvalidModelError, "correct the node, or export the model again"),
    ("invalid model", InvalidModelError, "correct the node, or export the model again"),
)


def ort_errors() -> tuple[type[Exception], ...]:
    """Everything onnxruntime raises; its classes have no common base but Exception."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = (v for v in vars(state).values() if isinstance(v, type) and issubclass(v, Exception))
    return (*own, RuntimeError, ValueError)


def reason(error: BaseException) -> str:
    """The message of onnxruntime on one line, without status codes and source paths."""
    text = _full_reason(error)
    if len(text) <= _LONGEST:
        return text
    # The node is named first, the fault at the end.
    return f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _full_reason(error: BaseException) -> str:
    text = _STATUS.sub("", " ".join(str(error).split()))
    text = _SOURCE.sub("", text)
    text = _LOAD.sub("", text)
    return text.removesuffix(" Please fix either the inputs/outputs or the model.")


def refusal(label: str, error: BaseException) -> OnnxqError:
    """The error for a model, called `label`, for which no session could be created."""
    what = f"onnxruntime cannot load {label}: {reason(error)}"
    for sign, kind, fix in _REFUSALS:
        if sign in _full_reason(error):
            return kind(what, fix=fix)
    return UnsupportedModelError(what, fix="correct the part of the model that the message names")
