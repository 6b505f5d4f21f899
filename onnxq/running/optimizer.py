"""The graph that onnxruntime's optimiser makes of a model.

Only the levels that do not depend on the CPU: the last one chooses layouts by the width of its
registers. Whether int8 activations become uint8 is a default that differs between x86 and ARM, so
it is set here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import onnx

from onnxq.disk.scratch import scratch_folder
from onnxq.running.ort_crashes import check_survives
from onnxq.running.ort_session import new_options, start

Level: TypeAlias = Literal["none", "basic", "extended"]
"""none: types and shapes are inferred, functions inlined. basic: the graph is tidied, quantizers
are moved and added. extended: quantized operators become integer operators."""

_LEVELS: dict[Level, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
}
_CONFIG = {"session.qdqisint8allowed": "0", "session.disable_prepacking": "1"}


def optimize(proto: onnx.ModelProto, level: Level) -> onnx.ModelProto:
    """The graph at a level, written by onnxruntime; an OnnxqError if it refuses the model."""
    options = new_options(_LEVELS[level], _CONFIG, threads=1)
    check_survives(proto, "the model", optimized=level != "none")
    with scratch_folder() as folder:
        path = folder / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        start(proto.SerializeToString(), "the model", options)
        return onnx.load(path)
