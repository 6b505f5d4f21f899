"""Options that all sessions have."""

from __future__ import annotations

import onnx
import pytest

from onnxq.errors import OnnxqError
from onnxq.running.ort_session import new_options, start


def test_options() -> None:
    options = new_options("ORT_ENABLE_BASIC", {"session.x64quantprecision": "1"})
    assert options.graph_optimization_level.name == "ORT_ENABLE_BASIC"
    assert options.get_session_config_entry("session.x64quantprecision") == "1"
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_a_refusal_names_the_model() -> None:
    broken = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Huh(x) }'
    )
    with pytest.raises(OnnxqError, match=r"the model here.*Huh"):
        start(broken.SerializeToString(), "the model here", new_options("", {}))
