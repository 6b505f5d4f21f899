"""The guard of a float layer: Max(x, lowest finite number), which computes x.

onnxruntime's optimiser looks for DequantizeLinear directly before a layer. A guard hides it, and no
fusion removes it.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph.constants import array


def lowest(dtype: np.dtype[np.floating]) -> np.ndarray:
    """The lowest finite number of a float type, as a scalar of it."""
    return np.array(np.finfo(dtype).min, dtype)


def is_float_guard(node: gs.Node | None) -> bool:
    """Whether `node` only hides the producer of its first input."""
    if node is None or node.op != "Max" or len(node.inputs) != 2:
        return False
    limit = array(node.inputs[1])
    if limit is None or limit.size != 1 or not np.issubdtype(limit.dtype, np.floating):
        return False
    return bool(limit.reshape(()) == np.finfo(limit.dtype).min)
