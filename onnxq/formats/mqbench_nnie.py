"""Largest magnitudes for NNIE as MQBench's loaders expect them: by layer, one per input.

    {"nnie": {"gfpq_param_dict": {"<node>": [2.807], "<Add>": [1.382, 3.007],
                                  "<Upsample>": [2.5], "<Upsample>_permute_0": [2.5]}}}

All grids are logarithmic (`onnxq.fake_quantize_log`). `onnxq.gfpq` says which inputs have a number.
An Upsample becomes two layers on NNIE, the second with a name that counts all Upsamples. Weights
of Conv and Gemm are not in the file: their values lie on a grid, and the largest tells which.
Read back, weights of the layers in the file get that one. It may begin lower than the grid they
were trained on, but rounds none of their values.

A list may be shorter than the inputs of its layer, and does not say which of them it is about.
As on the chip a tensor has one number, so it is that of those other layers tell the same for. A
table that could not be read back is refused.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_graphsurgeon as gs

from onnxq import side_rows, strict_json
from onnxq.constants import array, is_constant
from onnxq.edit import describe, read_by, users
from onnxq.errors import LoadError, QParamsError, near_matches
from onnxq.fake_quantize_log import logarithmic
from onnxq.gfpq import UPSAMPLES, is_own_weight, told_inputs
from onnxq.graph import Model
from onnxq.log_params import LogParams
from onnxq.qparam_table import QParamTable
from onnxq.qparams import GRAPH_OUTPUT, Reader, Role
from onnxq.side_file import SideFile
from onnxq.strict_json import Entry

_WHAT = "an NNIE parameter file"
_FIX = 'expected {"nnie": {"gfpq_param_dict": {"<node>": [<largest magnitude per input>]}}}'
_REFUSED = "numbers for NNIE"
_NEXT = (
    "convert for backend nnie, which moves and drops quantizers until they fit, or quantize as "
    "it places them"
)

_Numbers = dict[str, list[float]]


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; numbers are the exact decimal form of their float32."""
    refused = {row.tensor: "its grid is linear" for row in table.of(Role.ACTIVATION, Role.WEIGHT)}
    found: dict[Reader, LogParams] = {}
    for row, reader in _uses(table, model):
        if reader in found:
            refused[row.tensor] = "it is quantized twice for the same reader"
        found[reader] = row
    numbers: _Numbers = {}
    count = 0
    for node in model.nodes():
        held = told_inputs(node)
        rows = [found.pop(reader, None) for reader in (read_by(node, i) for i in held)]
        values = [row.data_max for row in rows if row is not None]
        if values:
            _add(numbers, node, values, refused)
        if node.op in UPSAMPLES:
            if values:
                numbers[f"{node.name}_permute_{count}"] = values
            count += 1
        for index in range(len(node.inputs)):
            row = found.pop(read_by(node, index), None)
            if row is not None and not is_constant(node.inputs[index]):
                refused[row.tensor] = f"{describe(node)} has no number for it"
        _check_weight(node, bool(values), refused)
    for row in found.values():
        refused[row.tensor] = "it leaves the network, and only inputs have numbers"
    if not refused:
        refused = _misread(numbers, table, model)
    if refused:
        raise side_rows.not_writable(refused, _REFUSED, _NEXT)
    return strict_json.dump({"nnie": {"gfpq_param_dict": numbers}})
