"""Sessions of onnxruntime itself, with the options that all of ours have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxq.running.ort_errors import ort_errors, refusal


def new_options(level: str, config: Mapping[str, str], threads: int = 0) -> Any:
    """Options of a session, with the name of an optimisation level ('' for the default).

    0 `threads` are one on each core.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    # Every failure becomes an exception with onnxruntime's own words: nothing goes to stderr.
    options.log_severity_level = 4
    # Nodes run one after another. Inside a node all threads are used: kernels divide the outputs
    # among them, never a sum, so the numbers do not depend on how many there are.
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = threads
    if level:
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    for key, value in {"session.intra_op.allow_spinning": "0", **config}.items():
        options.add_session_config_entry(key, value)
    return options


def start(model: str | bytes, label: str, options: Any) -> Any:
    """A session of onnxruntime for a file or a serialised model; `label` is for messages."""
    import onnxruntime as ort

    try:
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except ort_errors() as error:
        raise refusal(label, error) from error
