"""Largest magnitudes for NNIE as MQBench's loaders expect them: by layer, one per input.

    {"nnie": {"gfpq_param_dict": {"<node>": [2.807], "<Add>": [1.382, 3.007],
                                  "<Upsample>": [2.5], "<Upsample>_permute_0": [2.5]}}}

All grids are logarithmic (`onnxq.canonical.fake_quantize_log`). `onnxq.side_files.nnie_inputs` says
which inputs have a number. An Upsample becomes two layers on NNIE, the second with a name that
counts all Upsamples. Weights of Conv and Gemm are not in the file: their values lie on a grid, and
the largest tells which. Read back, weights of the layers in the file get that one, and those of
convolutions in groups, which have no key, where their values lie on it. It may begin lower than the
grid they were trained on, but rounds none of their values.

A list may be shorter than the inputs of its layer, and does not say which of them it is about.
As on the chip a tensor has one number, so it is that of those other layers tell the same for. A
table that could not be read back is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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
from onnxq.side_files.side_file import SideFile

_WHAT = "an NNIE parameter file"
_FIX = 'expected {"nnie": {"gfpq_param_dict": {"<node>": [<largest magnitude per input>]}}}'
_NEXT = (
    "quantize as backend nnie places quantizers, and convert for it: this moves and drops "
    "unsupported quantizers"
)

_Use = tuple[str, Reader]
"""A tensor and who reads it."""


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; numbers are the exact decimal form of their float32."""
    refused = {row.tensor: "its grid is linear" for row in table.of(Role.ACTIVATION, Role.WEIGHT)}
    rows = _ByUse(table)
    names = Counter(node.name for node in model.nodes())
    numbers: dict[str, list[float]] = {}
    written: dict[_Use, float] = {}
    for node in model.nodes():
        told = set(writable_inputs(node))
        values = []
        for index, tensor in enumerate(node.inputs):
            use = (tensor.name, read_by(node, index))
            for row in rows.of(*use):
                if index in told and use not in written:
                    values.append(row.data_max)
                    written[use] = row.data_max
                elif index in told:
                    refused[tensor.name] = "it is quantized twice for the same reader"
                elif not is_constant(tensor):
                    refused[tensor.name] = f"{describe(node)} has no number for it"
                elif not _on_grid(tensor, row.data_max):
                    refused[tensor.name] = "its values are not on its grid: run 'round-weights'"
        if not values:
            continue
        numbers[node.name] = values
        if not node.name or names[node.name] > 1:
            refused[node.inputs[min(told)].name] = f"{describe(node)} has no name of its own"
        if len(node.inputs) > 1 and is_own_weight(node, 1) and not _on_grid(node.inputs[1]):
            refused[node.inputs[1].name] = "it is a weight that is not on a logarithmic grid"
    for tensor in (t for graph in model.graphs() for t in graph.outputs):
        for _ in rows.of(tensor.name, GRAPH_OUTPUT):
            refused[tensor.name] = "it leaves the network, and only inputs have numbers"
    refused |= {name: "the model does not have it" for name in rows.unused}
    if not refused:
        refused = _misread(numbers, written, model)
    if refused:
        raise side_rows.not_writable(refused, "numbers for NNIE", _NEXT)
    for key, name in _second_layers(model).items():
        if name in numbers:
            numbers[key] = numbers[name]
    return strict_json.dump({"nnie": {"gfpq_param_dict": numbers}})


class _ByUse:
    """The logarithmic rows of a table by what they are about."""

    def __init__(self, table: QParamTable) -> None:
        self._rows: dict[str, list[LogParams]] = {}
        for row in table.logarithmic:
            self._rows.setdefault(row.tensor, []).append(row)
        self.unused = set(self._rows)
        """Tensors that nobody asked for."""

    def of(self, tensor: str, reader: Reader) -> list[LogParams]:
        """The rows for one use."""
        self.unused.discard(tensor)
        rows = self._rows.get(tensor, [])
        return [row for row in rows if row.readers is None or reader in row.readers]


def _on_grid(tensor: gs.Tensor, reach: float | None = None) -> bool:
    """Whether the values of a constant lie on the grid of `reach`, or of their largest one."""
    values = array(tensor)
    reach = _largest(tensor) if reach is None else reach
    return values is None or not reach or np.array_equal(logarithmic(values, reach), values)


def _largest(tensor: gs.Tensor) -> float:
    values = array(tensor)
    return 0.0 if values is None or not values.size else float(np.abs(values).max())


def _second_layers(model: Model) -> dict[str, str]:
    """The name of the second layer of each Upsample, and that of the first."""
    found = [node for node in model.nodes() if node.op in UPSAMPLES]
    return {f"{node.name}_permute_{at}": node.name for at, node in enumerate(found)}


def _misread(
    numbers: dict[str, list[float]], written: dict[_Use, float], model: Model
) -> dict[str, str]:
    """Tensors whose numbers would be read for others, or for none."""
    read, unclear = _assigned(numbers, {n.name: n for n in model.nodes()})
    why = "does not specify which of its inputs the numbers are for"
    lost = {
        node.inputs[writable_inputs(node)[0]].name: f"{describe(node)} {why}" for node in unclear
    }
    for (name, reader), _ in read.items() ^ written.items():
        lost[name] = f"the producer of '{reader.node}' {why}"
    return lost


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`; weights of Conv and Gemm get the largest magnitude they have."""
    document = Entry.parse(text, _WHAT, _FIX)
    document.only(("nnie",))
    inner = Entry.of(document.value["nnie"], "'nnie'", _FIX)
    inner.only(("gfpq_param_dict",))
    layers = Entry.of(inner.value["gfpq_param_dict"], "'gfpq_param_dict'", _FIX)
    nodes: dict[str, list[gs.Node]] = {}
    for node in model.nodes():
        nodes.setdefault(node.name, []).append(node)
    second = _second_layers(model)
    numbers: dict[str, list[float]] = {}
    for name in layers.value:
        values = layers.numbers(name)
        if name not in nodes and name in second:
            if layers.value.get(second[name]) != layers.value[name]:
                raise layers.error(f"'{name}' does not have the numbers of '{second[name]}'")
            continue
        if len(nodes.get(name, [])) != 1:
            raise layers.error(
                f"the model has several nodes '{name}'"
                if name in nodes
                else f"the model has no node '{name}'; {near_matches(name, nodes)}"
            )
        told = writable_inputs(nodes[name][0])
        if len(values) > len(told):
            raise layers.error(f"'{name}' has {len(values)} numbers for {len(told)} inputs")
        for value in values:
            try:
                LogParams(name, value)
            except QParamsError as error:
                raise layers.error(error.what) from error
        numbers[name] = values
    for key, name in second.items():
        if name in numbers and key not in layers.value:
            raise layers.error(f"key '{key}' is missing, the second layer of '{name}'")
    single = {name: found[0] for name, found in nodes.items()}
    found, unclear = _assigned(numbers, single)
    if unclear:
        name = unclear[0].name
        raise layers.error(
            f"'{name}' has {len(numbers[name])} of {len(writable_inputs(unclear[0]))} numbers, "
            "and no other layer specifies for which of its inputs"
        )
    weights = (n.inputs[1] for n in model.nodes() if _has_rounded_weight(n, n.name in numbers))
    return QParamTable(logarithmic=[*_rows(found, model), *_weight_rows(weights)])


def _has_rounded_weight(node: gs.Node, told: bool) -> bool:
    """Whether the chip rounds the weight of `node`: it does in layers that the file tells of."""
    if len(node.inputs) < 2 or not is_own_weight(node, 1):
        return False
    return told or (not writable_inputs(node) and _on_grid(node.inputs[1]))


def _assigned(
    numbers: dict[str, list[float]], nodes: dict[str, gs.Node]
) -> tuple[dict[_Use, float], list[gs.Node]]:
    """The number of each use, and the nodes whose numbers cannot be assigned to inputs."""
    found: dict[_Use, float] = {}
    known: dict[str, set[float]] = {}
    partial = []

    def assign(node: gs.Node, inputs: list[int]) -> None:
        for index, value in zip(inputs, numbers[node.name], strict=True):
            found[node.inputs[index].name, read_by(node, index)] = value
            known.setdefault(node.inputs[index].name, set()).add(value)

    for name, values in numbers.items():
        node = nodes[name]
        told = writable_inputs(node)
        computed = [i for i in told if not is_constant(node.inputs[i])]
        if len(values) in (len(computed), len(told)):
            assign(node, computed if len(values) == len(computed) else told)
        else:
            partial.append((node, computed))
    unclear = []
    for node, computed in partial:
        values = numbers[node.name]
        first = _matching(node, computed, values, known)
        last = _matching(node, computed[::-1], values[::-1], known)
        if first is None or last is None or first != last[::-1]:
            unclear.append(node)
        else:
            assign(node, first)
    return found, unclear


def _matching(
    node: gs.Node, inputs: list[int], values: list[float], known: dict[str, set[float]]
) -> list[int] | None:
    """The first inputs in that order of which other layers tell these numbers; None: too few."""
    chosen: list[int] = []
    for index in inputs:
        told = known.get(node.inputs[index].name, set())
        if len(chosen) < len(values) and values[len(chosen)] in told:
            chosen.append(index)
    return chosen if len(chosen) == len(values) else None


def _rows(found: dict[_Use, float], model: Model) -> Iterator[LogParams]:
    """One row per tensor and number; it names readers unless it is for all."""
    tensors = {t.name: t for node in model.nodes() for t in node.inputs if t.name}
    groups: dict[tuple[str, float], list[Reader]] = {}
    for (name, reader), value in found.items():
        groups.setdefault((name, value), []).append(reader)
    for (name, value), readers in groups.items():
        tensor = tensors[name]
        every = not model.is_output(tensor) and len(users(tensor)) == len(readers)
        role = Role.WEIGHT if is_constant(tensor) else Role.ACTIVATION
        yield LogParams(name, value, role, None if every else tuple(readers))


def _weight_rows(weights: Iterator[gs.Tensor]) -> Iterator[LogParams]:
    for tensor in {t.name: t for t in weights}.values():
        if _largest(tensor):
            yield LogParams(tensor.name, _largest(tensor), Role.WEIGHT)


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
