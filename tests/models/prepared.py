"""A model in each of the forms that passes are given."""

from __future__ import annotations

from functools import cached_property

import onnx

from onnxq import discovery
from onnxq.graph import Model, from_proto
from onnxq.pass_ import Pass
from onnxq.pipeline import Pipeline
from onnxq.reading import READERS

PASSES = {name: cls for name, cls in discovery.passes().items() if isinstance(cls, type)}
"""Every pass by its name."""

READ = tuple(PASSES[name]() for name in READERS)


class Forms:
    """The forms of one model, each made once: passes work on copies."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.source = from_proto(proto)

    @cached_property
    def canonical(self) -> Model:
        """Quantization read into FakeQuantize nodes."""
        return Pipeline(*READ).run(self.source).model

    @cached_property
    def unquantized(self) -> Model:
        """The float model with its table, as `apply-qparams` takes it."""
        collect, remove = PASSES["collect-qparams"](), PASSES["remove-fake-quant"]()
        return Pipeline(*READ, collect, remove).run(self.source).model

    def prepared(self, step: Pass) -> Model:
        """The model as a pipeline would hand it to `step`: canonical where the pass asks for it."""
        if step.name == "apply-qparams":
            return self.unquantized
        return self.canonical if step.needs_canonical else self.source
