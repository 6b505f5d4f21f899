"""What onnxruntime's optimiser makes of a graph.

Only the levels that do not ask which CPU this is: the last one chooses layouts by the width of its
registers. Whether int8 activations are made uint8 is a default that differs between x86 and ARM,
so it is set.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import onnx

from onnxq.disk.scratch import scratch_folder
from onnxq.running.ort_crashes import check_survives
from onnxq.running.ort_errors import ort_errors, refusal

Level: TypeAlias = Literal["none", "basic", "extended"]
"""none: types and shapes are inferred, functions inlined. basic: the graph is tidied, quantizers
are moved and added. extended: quantized operators become integer operators."""

_CONFIG = {
    "session.qdqisint8allowed": "0",
    "session.disable_prepacking": "1",
    "session.intra_op.allow_spinning": "0",
}


def optimize(proto: onnx.ModelProto, level: Level) -> onnx.ModelProto:
    """The graph at a level, written by onnxruntime; an OnnxqError tells why there is none."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
    }[level]
    for key, value in _CONFIG.items():
        options.add_session_config_entry(key, value)
    check_survives(proto, "the model", optimized=level != "none")
    with scratch_folder() as folder:
        path = folder / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        try:
            ort.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except ort_errors() as error:
            raise refusal("the model", error) from error
        return onnx.load(path)
