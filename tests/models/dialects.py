"""The graph dialects that onnxq writes, each with the passes that write and that read it."""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.graph import Model, from_proto
from onnxq.pass_ import Pass
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from passes.collect_qparams import CollectQParams
from passes.phases import READ
from passes.to_composed import ToComposed
from passes.to_mqbench import ToMqbench
from passes.to_openvino import ToOpenvino
from passes.to_qdq import ToQdq
from passes.to_qonnx import ToQonnx
from passes.to_qoperator import ToQoperator

WRITERS: Mapping[str, tuple[Pass, ...]] = {
    "canonical": (),
    "qdq": (ToQdq(),),
    "qdq-float-weights": (ToQdq(weights="float"),),
    "composed": (ToComposed(),),
    "mqbench": (ToMqbench(),),
    "qonnx": (ToQonnx(),),
    "openvino": (ToOpenvino(),),
    "qoperator": (ToQoperator(),),
}
"""How each dialect is written from the canonical form."""

RUNNABLE = ("canonical", "qdq", "qdq-float-weights", "composed", "qoperator")
"""Dialects that onnxruntime runs as they are."""


def written(model: Model, dialect: str) -> Model:
    """`model` in a dialect, through the bytes of a file."""
    made = Pipeline(*WRITERS[dialect]).run(model).model
    return from_proto(made.to_proto())


def read(model: Model) -> Model:
    """`model` in canonical form."""
    return Pipeline(*READ).run(model).model


def table(model: Model) -> QParamTable:
    """The quantization table of a canonical model."""
    return Pipeline(CollectQParams()).run(model).model.qparams
