"""Largest magnitudes for NNIE as MQBench's loaders expect them: by layer, one per input.

    {"nnie": {"gfpq_param_dict": {"<node>": [2.807], "<Add>": [1.382, 3.007],
                                  "<Upsample>": [2.5], "<Upsample>_permute_0": [2.5]}}}

All grids are logarithmic (`onnxq.canonical.fake_quantize_log`). `onnxq.side_files.nnie_inputs`
specifies which inputs have a number. An Upsample becomes two layers on NNIE, the second with a name
that counts all Upsamples. Weights of Conv and Gemm are not in the file: their values lie on a grid,
which their largest magnitude determines. Read back, weights of the layers in the file get that
grid. Grouped convolutions have no key; their weights get it if their values lie on it. It may start
lower than the grid they were trained on, but rounds none of their values.

A list may be shorter than the inputs of its layer: `onnxq.side_files.nnie_numbers` tells which of
them it is for. A table that could not be read back is rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize_log import logarithmic
from onnxq.edit import describe, read_by, users
from onnxq.errors import QParamsError, near_matches
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import GRAPH_OUTPUT, Reader, Role
from onnxq.side_files import rows as side_rows
from onnxq.side_files.nnie_inputs import UPSAMPLES, is_own_weight, writable_inputs
from onnxq.side_files.nnie_numbers import assigned
from onnxq.side_files.side_file import SideFile

_WHAT = "an NNIE parameter file"
_FIX = 'expected {"nnie": {"gfpq_param_dict": {"<node>": [<largest magnitude per input>]}}}'
_NEXT = (
    "quantize as backend nnie places quantizers, and convert for it: this moves and drops "
    "unsupported quantizers"
)
_UNNAMED = "has no name of its own"
_NAME = "name the nodes of the model, each differently"

_Use = tuple[str, Reader]
"""A tensor and one of its consumers."""


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; numbers are the exact decimal form of their float32."""
    refused = {row.tensor: "its grid is linear" for row in table.of(Role.ACTIVATION, Role.WEIGHT)}
    nodes = model.nodes()
    outputs = [t for graph in model.graphs() for t in graph.outputs]
    used = {t.name for t in (*outputs, *(t for node in nodes for t in node.inputs))}
    rows: dict[str, list[LogParams]] = {}
    for row in table.logarithmic:
        rows.setdefault(row.tensor, []).append(row)
        if row.tensor not in used:
            refused[row.tensor] = "the model does not have it"
    names = Counter(node.name for node in nodes)
    numbers: dict[str, list[float]] = {}
    written: dict[_Use, float] = {}
    for node in nodes:
        inputs = writable_inputs(node)
        values = []
        for index, tensor in enumerate(node.inputs):
            use = (tensor.name, read_by(node, index))
            for row in _rows_for(use, rows):
                if index in inputs and use not in written:
                    values.append(row.data_max)
                    written[use] = row.data_max
                elif index in inputs:
                    refused[tensor.name] = "it is quantized twice for the same consumer"
                elif not is_constant(tensor):
                    refused[tensor.name] = f"{describe(node)} has no number for it"
                elif not _on_grid(tensor, row.data_max):
                    refused[tensor.name] = "its values are not on its grid: run 'round-weights'"
        if not values:
            continue
        numbers[node.name] = values
        if not node.name or names[node.name] > 1:
            refused[node.inputs[inputs[0]].name] = f"{describe(node)} {_UNNAMED}"
        if is_own_weight(node, 1) and not _on_grid(node.inputs[1]):
            refused[node.inputs[1].name] = "it is a weight that is not on a logarithmic grid"
    for tensor in outputs:
        if _rows_for((tensor.name, GRAPH_OUTPUT), rows):
            refused[tensor.name] = "it is a graph output, and only inputs of layers have numbers"
    refused = refused or _misread(numbers, written, model)
    unnamed = refused and all(why.endswith(_UNNAMED) for why in refused.values())
    side_rows.check_writable(refused, "numbers for NNIE", _NAME if unnamed else _NEXT)
    for key, name in _second_layers(model).items():
        if name in numbers:
            numbers[key] = numbers[name]
    return strict_json.dump({"nnie": {"gfpq_param_dict": numbers}})


def _rows_for(use: _Use, rows: dict[str, list[LogParams]]) -> list[LogParams]:
    """The rows that quantize one use of a tensor."""
    tensor, reader = use
    return [r for r in rows.get(tensor, []) if r.readers is None or reader in r.readers]


def _on_grid(tensor: gs.Tensor, reach: float | None = None) -> bool:
    """Whether the values of a constant lie on the grid of `reach`, by default their own."""
    values = array(tensor)
    reach = _largest(tensor) if reach is None else reach
    return values is None or not reach or np.array_equal(logarithmic(values, reach), values)


def _largest(tensor: gs.Tensor) -> float:
    values = array(tensor)
    return 0.0 if values is None or not values.size else float(np.abs(values).max())


def _second_layers(model: Model) -> dict[str, str]:
    """The name of the second layer of each Upsample, with that of the first."""
    found = [node for node in model.nodes() if node.op in UPSAMPLES]
    return {f"{node.name}_permute_{at}": node.name for at, node in enumerate(found)}


def _misread(
    numbers: dict[str, list[float]], written: dict[_Use, float], model: Model
) -> dict[str, str]:
    """Tensors whose numbers would be assigned to others, or to none, when read back."""
    read, unclear = _assigned(numbers, {n.name: n for n in model.nodes()})
    why = "does not specify which of its inputs the numbers are for"
    lost = {
        node.inputs[writable_inputs(node)[0]].name: f"{describe(node)} {why}" for node in unclear
    }
    for (name, reader), _ in read.items() ^ written.items():
        lost[name] = f"the producer of '{reader.node}' {why}"
    return lost


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`; weights of Conv and Gemm get the grid of their largest magnitude."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("nnie",))
    inner = Entry.of(document.value["nnie"], "'nnie'", _FIX)
    inner.only(("gfpq_param_dict",))
    layers = Entry.of(inner.value["gfpq_param_dict"], "'gfpq_param_dict'", _FIX)
    nodes = {node.name: node for node in model.nodes()}
    count = Counter(node.name for node in model.nodes())
    second = _second_layers(model)
    numbers: dict[str, list[float]] = {}
    for name in layers.value:
        values = layers.numbers(name)
        if name not in nodes and name in second:
            if layers.value.get(second[name]) != layers.value[name]:
                raise layers.error(f"'{name}' does not have the numbers of '{second[name]}'")
            continue
        if name not in nodes:
            raise layers.error(f"the model has no node '{name}'; {near_matches(name, nodes)}")
        if count[name] > 1:
            raise layers.error(f"the model has several nodes '{name}'")
        inputs = writable_inputs(nodes[name])
        if len(values) > len(inputs):
            raise layers.error(f"'{name}' has {len(values)} numbers for {len(inputs)} inputs")
        for value in values:
            try:
                LogParams(name, value)
            except QParamsError as error:
                raise layers.error(error.what) from error
        numbers[name] = values
    for key, name in second.items():
        if name in numbers and key not in layers.value:
            raise layers.error(f"key '{key}' is missing, the second layer of '{name}'")
    found, unclear = _assigned(numbers, nodes)
    if unclear:
        name = unclear[0].name
        raise layers.error(
            f"'{name}' has {len(numbers[name])} of {len(writable_inputs(unclear[0]))} numbers, "
            "and no other layer specifies for which of its inputs"
        )
    return QParamTable(logarithmic=[*_rows(found, model), *_weight_rows(model, numbers)])


def _assigned(
    numbers: dict[str, list[float]], nodes: dict[str, gs.Node]
) -> tuple[dict[_Use, float], list[gs.Node]]:
    """The number of each use, and the nodes whose numbers cannot be assigned to inputs."""
    found, unclear = assigned((nodes[name], values) for name, values in numbers.items())
    uses = {
        (node.inputs[index].name, read_by(node, index)): value
        for node, given in found
        for index, value in given.items()
    }
    return uses, unclear


def _rows(found: dict[_Use, float], model: Model) -> Iterator[LogParams]:
    """One row per tensor and number; it names consumers unless it is for all."""
    tensors = {t.name: t for node in model.nodes() for t in node.inputs if t.name}
    groups: dict[tuple[str, float], list[Reader]] = {}
    for (name, reader), value in found.items():
        groups.setdefault((name, value), []).append(reader)
    for (name, value), readers in groups.items():
        tensor = tensors[name]
        every = not model.is_output(tensor) and len(users(tensor)) == len(readers)
        role = Role.WEIGHT if is_constant(tensor) else Role.ACTIVATION
        yield LogParams(name, value, role, None if every else tuple(readers))


def _weight_rows(model: Model, numbers: Collection[str]) -> list[LogParams]:
    """The weights that the chip rounds, as it does in the layers of the file."""
    found: dict[str, LogParams] = {}
    for node in model.nodes():
        weight = node.inputs[1] if is_own_weight(node, 1) else None
        if weight is None or not _largest(weight):
            continue
        if node.name in numbers or (not writable_inputs(node) and _on_grid(weight)):
            found[weight.name] = LogParams(weight.name, _largest(weight), Role.WEIGHT)
    return list(found.values())


def _recognises(content: str) -> bool:
    inner = strict_json.peek(content).get("nnie")
    return isinstance(inner, dict) and "gfpq_param_dict" in inner


FORMAT = SideFile(
    "mqbench-nnie",
    "NNIE in MQBench's form: the largest magnitude of each input, by layer",
    write,
    read,
    recognises=_recognises,
    detection='JSON with {"nnie": {"gfpq_param_dict": ...}}',
    readers=True,
)
