"""Small seeded ONNX models for contract tests: name → maker, sets of names, and random feeds.

Every maker returns a fresh model, the same bytes each time, valid for onnx.checker and run by
onnxruntime in milliseconds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

# Importing a module registers its models.
from tests.models import (
    zoo_composed,
    zoo_dialects,
    zoo_layers,
    zoo_networks,
    zoo_opsets,
    zoo_qdq,
    zoo_qdq_forms,
    zoo_qoperator,
    zoo_structure,
)
from tests.models.zoo_build import ZOO, model
from tests.models.zoo_tags import BATCH_NORM, CNN, DIALECTS, FLOAT, HALF, QDQ, SUBGRAPHS

__all__ = [
    "BATCH_NORM",
    "CNN",
    "DIALECTS",
    "FLOAT",
    "HALF",
    "QDQ",
    "SUBGRAPHS",
    "ZOO",
    "inputs",
    "model",
]

SOURCES = (
    *(zoo_layers, zoo_networks, zoo_opsets, zoo_structure),
    *(zoo_qdq, zoo_qdq_forms, zoo_qoperator, zoo_dialects, zoo_composed),
)

DYNAMIC_BATCH, DYNAMIC_OTHER = 2, 6


def inputs(proto: onnx.ModelProto, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Random feeds for the inputs without default: floats of unit variance, ints 0..3, bools.

    A free dimension becomes 2 when it comes first and 6 elsewhere; equal symbols get equal sizes.
    """
    rng = np.random.default_rng(seed)
    defaults = {tensor.name for tensor in proto.graph.initializer}
    sizes: dict[str, int] = {}
    feeds: dict[str, npt.NDArray[np.generic]] = {}
    for value in proto.graph.input:
        if value.name in defaults:
            continue
        shape = []
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            free = DYNAMIC_BATCH if axis == 0 else DYNAMIC_OTHER
            if dim.dim_param:
                free = sizes.setdefault(dim.dim_param, free)
            shape.append(dim.dim_value if dim.HasField("dim_value") else free)
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if np.issubdtype(dtype, np.floating):
            feeds[value.name] = np.asarray(rng.standard_normal(shape)).astype(dtype)
        elif dtype == np.bool_:
            feeds[value.name] = np.asarray(rng.integers(0, 2, shape)).astype(bool)
        else:
            feeds[value.name] = np.asarray(rng.integers(0, 4, shape)).astype(dtype)
    return feeds
