"""Shorthand for tests of integer operators."""

from __future__ import annotations

import onnx

from onnxq.graph import Model, from_proto
from onnxq.pass_ import Trace
from onnxq.pipeline import Pipeline
from onnxq.quant.qparams import QParams
from passes.read_qdq import ReadQdq
from passes.read_qoperator import ReadQoperator
from tests.models.dialects import table


def contrib(body: str, opset: int = 17) -> Model:
    """A model from the text of its graph, with onnxruntime's own operators."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
    return from_proto(onnx.parser.parse_model(f"{head}\n{body}"))


def lowered(model: Model) -> tuple[Model, Trace]:
    """The model without integer operators, and the trace."""
    result = Pipeline(ReadQoperator()).run(model)
    return result.model, result.traces[0]


def canonical(model: Model) -> Model:
    """The model read as a file is: nothing is known of what stood in memory before."""
    return Pipeline(ReadQoperator(), ReadQdq()).run(from_proto(model.to_proto())).model


def rows_by_tensor(model: Model, *, biases: bool = True) -> dict[tuple[str, str, object], QParams]:
    """The quantization table by tensor, role and readers."""
    rows = table(model)
    return {(r.tensor, str(r.role), r.readers): r for r in rows if biases or r.role != "bias"}
