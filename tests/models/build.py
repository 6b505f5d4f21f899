"""Shorthand for tests: models from ONNX's text form, canonical graphs, and running them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.edit import insert
from onnxq.graph import Model, from_proto
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Pipeline
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions


def parse(body: str, opset: int = 17, ir_version: int = 8) -> Model:
    """A model from the text of its graph, such as 'g (float[N] x) => (float[N] y) {...}'."""
    text = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n{body}'
    return from_proto(onnx.parser.parse_model(text))


def parse_filled(body: str, opset: int = 17, seed: int = 0, **shapes: tuple[int, ...]) -> Model:
    """A model from text, with random initializers of these names and shapes."""
    text = f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}'
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        values = rng.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return from_proto(proto)


def apply(model: Model, *steps: Pass) -> tuple[Model, Trace]:
    """Run passes; the model and the last trace."""
    result = Pipeline(*steps).run(model)
    return result.model, result.traces[-1]


def run(model: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """Outputs in the reference session, inputs given in order."""
    session = sessions.reference(model)
    feeds = dict(zip((i.name for i in session.inputs), arrays, strict=True))
    return list(session.run(feeds).values())


def tensor(model: Model, name: str) -> Any:
    """The tensor of that name."""
    for node in model.nodes():
        for found in (*node.inputs, *node.outputs):
            if found.name == name:
                return found
    raise KeyError(name)


def quantize(model: Model, name: str, **fields: Any) -> Model:
    """Put a FakeQuantize on the tensor `name`: int8 of scale 0.1, or fields as of QParams."""
    fields = {"qtype": "int8", "scale": np.float32(0.1), "zero_point": 0, **fields}
    fields["qtype"] = qtype(fields["qtype"])
    params = QParams(tensor=name, **fields)
    model.refresh()
    insert(model, tensor(model, name), lambda x, y, g: fake_quantize.make(model, x, y, params, g))
    return model


def log_quantize(
    model: Model, name: str, data_max: float, uses: Iterable[tuple[str, int]] | None = None
) -> Model:
    """Put a FakeQuantizeLog on the tensor `name`, or in front of some of its uses."""

    def build(x: Any, y: Any, graph: Any) -> None:
        fake_quantize_log.make(model, x, y, data_max, graph)

    model.refresh()
    insert(model, tensor(model, name), build, None if uses is None else [Reader(*u) for u in uses])
    return model


def weight(model: Model, name: str, **fields: Any) -> Model:
    """Put a weight FakeQuantize on the constant `name`."""
    return quantize(model, name, role=Role.WEIGHT, **fields)


def ops(model: Model) -> list[str]:
    """Operator types in order of the exported file, bodies left out."""
    return [n.op_type for n in model.to_proto().graph.node]


def reasons(trace: Trace) -> str:
    """All reasons of a trace in one text."""
    return "\n".join(s.reason for s in trace.skips)


def bit_equal(left: Iterable[np.ndarray], right: Iterable[np.ndarray]) -> bool:
    """Whether all arrays agree to the last bit."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )
