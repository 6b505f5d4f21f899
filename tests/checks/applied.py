"""Runs one pass on one model and checks, in onnxruntime, that the model computes as before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx

from onnxq.graph import Model, from_proto
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Pipeline
from onnxq.running.sessions import reference
from tests.models.build import parse
from tests.models.zoo import inputs


class Applied(NamedTuple):
    """What a pass made of a model."""

    model: Model
    proto: onnx.ModelProto
    trace: Trace

    def ops(self) -> list[str]:
        """Operators of all graphs, in order."""
        return [node.op for node in from_proto(self.proto).nodes()]

    def initializers(self) -> dict[str, np.ndarray]:
        """Initializers of the main graph."""
        return {t.name: onnx.numpy_helper.to_array(t) for t in self.proto.graph.initializer}

    def reasons(self) -> list[str]:
        """Why things were left as they are."""
        return [skip.reason for skip in self.trace.skips]


def apply_checked(
    source: str | onnx.ModelProto | Model, step: Pass, *, rtol: float = 0.0
) -> Applied:
    """Run `step`; results must agree (bit for bit unless `rtol` is given), a second run do nothing.

    `rtol` is relative to the largest value of each output.
    """
    if isinstance(source, str):
        source = parse(source)
    model = from_proto(source) if isinstance(source, onnx.ModelProto) else source
    result = Pipeline(step).run(model)
    proto = result.model.to_proto()
    onnx.checker.check_model(proto, full_check=True)
    assert Pipeline(step).run(result.model).traces[0].rewrites == []
    before, after = reference(model), reference(proto)
    assert [(o.name, o.type) for o in after.outputs] == [(o.name, o.type) for o in before.outputs]
    for seed in (0, 1):
        feeds = inputs(model.to_proto(), seed)
        old, new = before.run(feeds), after.run(feeds)
        for name, want in old.items():
            if rtol and want.dtype.kind == "f":
                bound = rtol * np.abs(want).max(initial=0)
                np.testing.assert_allclose(new[name], want, rtol=0, atol=bound)
            else:
                np.testing.assert_array_equal(new[name], want)
    return Applied(result.model, proto, result.traces[0])
