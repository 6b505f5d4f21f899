r"""Biases that make up for the average error of rounded weights.

Rounding W to W_q adds (W_q - W) x to the output of a layer. Its average over the data is a constant
per output channel, which the bias can take back:

    b_o  <-  b_o + \sum_j (W - W_q)_oj E[x_j]

with E[x_j] the average of input channel j; of a convolution the taps of a kernel are summed first.
It costs nothing at run time. At the border of a padded image the average is a little less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.arrays.pieces import row_slices
from onnxq.edit import constant, inputs_of, set_input, users
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.operators.op_kind import is_bias_of
from onnxq.operators.weight_axis import BIAS_INPUT, LINEAR_OPS
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Array, QParams, Role

MOST_AT_ONCE = 1 << 22
"""Elements of a weight from which on it is cut: 32 MB in float64."""


def correct_biases(model: Model, table: QParamTable, averages: Mapping[str, Array]) -> list[str]:
    """Correct the biases of a float `model`, which is changed; the outputs of these layers.

    `table` holds the grids of its weights, and `averages` those of tensors, per channel.
    """
    grids = {row.tensor: row for row in table.of(Role.WEIGHT)}
    done = []
    for layer in model.nodes(*LINEAR_OPS):
        grid, means = grids.get(layer.inputs[1].name), averages.get(layer.inputs[0].name)
        if grid is None or means is None:
            continue
        weight = array(layer.inputs[1])
        if weight is None:
            continue
        shift = _lost_output(layer, weight, grid, means)
        if shift is not None and np.any(shift) and _add(model, layer, shift):
            done.append(str(layer.outputs[0].name))
    return done


def _lost_output(layer: gs.Node, weight: Array, grid: QParams, means: Array) -> Array | None:
    """The average output per channel that rounding takes away; a large weight is cut by outputs."""
    shape = weight.shape
    axis = 0 if layer.op == "Conv" or layer.attrs.get("transB") else weight.ndim - 1
    if weight.size <= MOST_AT_ONCE or layer.attrs.get("group", 1) != 1:
        lost = np.subtract(weight, grid.fake(weight), dtype=np.float64)
        return output_shift(layer, lost, means)
    found = []
    for some in row_slices(shape[axis], weight.size // shape[axis]):
        at = tuple(some if each == axis else slice(None) for each in range(weight.ndim))
        lost = np.subtract(weight[at], grid.fake_block(weight[at], shape, at), dtype=np.float64)
        found.append(output_shift(layer, lost, means))
    known = [each for each in found if each is not None]
    return np.concatenate(known) if len(known) == len(found) else None


def output_shift(layer: gs.Node, weight: Array, means: Array) -> Array | None:
    """The average output per channel of `weight` on inputs of these averages."""
    if layer.op == "Conv":
        group = int(layer.attrs.get("group", 1))
        taps = weight.reshape(*weight.shape[:2], -1).sum(axis=2)
        if means.size != group * taps.shape[1]:
            return None
        per_group = taps.reshape(group, -1, taps.shape[1])
        return np.asarray((per_group * means.reshape(group, 1, -1)).sum(axis=2).reshape(-1))
    if layer.op in ("Gemm", "MatMul") and weight.ndim == 2 and not layer.attrs.get("transA"):
        matrix = weight if layer.attrs.get("transB") else weight.T
        if matrix.shape[1] != means.size:
            return None
        return np.asarray(matrix @ means * float(layer.attrs.get("alpha", 1.0)))
    return None


def _add(model: Model, layer: gs.Node, shift: Array) -> bool:
    """Add `shift` to the bias of a layer; False where it has none that can take it."""
    if layer.op == "MatMul":
        result = layer.outputs[0]
        found = users(result)
        if len(found) != 1 or is_bias_of(found[0][0]) is not layer:
            return False
        after = found[0][0]
        index = 1 if after.inputs[0] is result else 0
        return _replace(model, after, index, after.inputs[index], shift)
    index = BIAS_INPUT[layer.op]
    old = inputs_of(layer, index + 1)[index]
    scale = float(layer.attrs.get("beta", 1.0)) if layer.op == "Gemm" else 1.0
    if old is None:
        kind = np.dtype(layer.inputs[1].dtype or np.float32)
        name = f"{layer.name or layer.outputs[0].name}.bias"
        set_input(layer, index, constant(model, name, (shift / scale).astype(kind)))
        return True
    return bool(scale) and _replace(model, layer, index, old, shift / scale)


def _replace(model: Model, node: gs.Node, index: int, old: gs.Tensor, shift: Array) -> bool:
    value = array(old)
    if value is None or value.size not in (1, shift.size) or value.ndim > 2:
        return False
    new = (value.reshape(-1).astype(np.float64) + shift).astype(value.dtype)
    set_input(node, index, constant(model, f"{old.name}.corrected", new))
    return True


__all__ = ["correct_biases", "output_shift"]
