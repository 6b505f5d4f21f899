"""A model as a graph that can be edited: load it, look at it, change it, save it."""

import onnxq.graph.pickling  # noqa: F401 - registers itself with `pickle`
from onnxq.graph.constants import array, is_constant
from onnxq.graph.model import (
    MAX_IR,
    MAX_OPSET,
    TABLE_KEY,
    Model,
    domain_of,
    from_proto,
    load,
    new_model,
    save,
    stage,
)

__all__ = [
    "MAX_IR",
    "MAX_OPSET",
    "TABLE_KEY",
    "Model",
    "array",
    "domain_of",
    "from_proto",
    "is_constant",
    "load",
    "new_model",
    "save",
    "stage",
]
