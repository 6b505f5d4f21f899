"""Running a model in onnxruntime without any code of onnxq."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime as ort


def run_plain(model: onnx.ModelProto | bytes, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """All outputs, computed without optimisation."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    data = model if isinstance(model, bytes) else model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))  # type: ignore[no-any-return]
