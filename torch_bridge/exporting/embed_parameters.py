"""Puts into an exported graph exactly the numbers that the model computes with in torch.

Exporters fold constants with arithmetic of their own, merge equal initializers and leave scales
as expressions of parameters. So the values that a weight quantizer rounds, and the scales that it
uses, are taken from the modules: a weight that differs in its last bit may round to another code.
A node is matched to its module by path, never by the name of an initializer.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import numpy as np
import onnx_graphsurgeon as gs
from torch import Tensor, nn

from onnxq.canonical import fake_quantize, fake_quantize_log
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG
from onnxq.edit import constant, replace, set_input
from onnxq.errors import UnsupportedModelError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.storage.exporter import is_read
from torch_bridge.capture.flat_call import unique
from torch_bridge.capture.recorded_run import RecordedRun
from torch_bridge.fake_quant import FakeQuantize
from torch_bridge.fake_quant.nnie import Nnie

_QUANTIZERS = (FAKE_QUANTIZE, FAKE_QUANTIZE_LOG)
_LAYERS = ("Conv", "ConvTranspose", "Gemm")


def name_layers(model: Model, path_of: Callable[[gs.Node], str]) -> dict[int, str]:
    """Name nodes and their outputs after torch's modules: 'layer1.0.conv1/Conv'.

    A quantizer is its module, so its node has the name of the module alone. Returns the path of
    every node by `id`.
    """
    nodes = model.nodes()
    paths = {id(node): path_of(node) for node in nodes}
    quantizers = {id(node) for node in model.nodes(*_QUANTIZERS)}
    wanted = []
    for node in nodes:
        path = paths[id(node)]
        whole = path and id(node) in quantizers
        wanted.append(path if whole else f"{path}/{node.op}" if path else node.op)
    for node, name in zip(nodes, unique(wanted), strict=True):
        node.name = name
    made = [
        (tensor, f"{node.name}_output_{i}")
        for node in nodes
        for i, tensor in enumerate(node.outputs)
        if tensor.name and not model.is_output(tensor)
    ]
    kept = [t.name for graph in model.graphs() for t in (*graph.inputs, *graph.outputs)]
    kept += [c.name for graph in model.graphs() for c in graph.record.constants]
    for (tensor, _), name in zip(made, unique([n for _, n in made], kept), strict=True):
        tensor.name = name
    return paths


def resolve_aliases(model: Model) -> None:
    """Let every consumer of an initializer read it directly, not through an Identity."""
    for node in model.nodes("Identity"):
        if isinstance(node.inputs[0], gs.Constant) and not model.is_output(node.outputs[0]):
            replace(node, node.inputs[0], model)


def set_quantizers(
    model: Model, source: nn.Module, run: RecordedRun, paths: dict[int, str]
) -> None:
    """Give every quantizer the parameters of its module, and every weight the value it rounds."""
    modules = {n: m for n, m in source.named_modules() if isinstance(m, FakeQuantize)}
    # A bare call of the function has no module: its constants are in the graph already.
    nodes = [n for n in model.nodes(*_QUANTIZERS) if paths.get(id(n)) in modules]
    varying = _varying(model)
    known = source.state_dict()
    weights: dict[int, tuple[str, Tensor]] = {}
    for node in nodes:
        path = paths[id(node)]
        value = None if id(node.inputs[0]) in varying else run.rounded.get(path)
        if value is not None and not _holds(node.inputs[0], value, known):
            weights[id(node)] = path, value
    for node in nodes:  # let go of the inputs that get another value below
        for index in range(id(node) not in weights, len(node.inputs)):
            set_input(node, index, gs.Variable("", dtype=node.inputs[index].dtype))
    _forget_unread(model)
    made: dict[str, gs.Constant] = {}
    for node in nodes:
        if id(node) in weights:
            path, value = weights[id(node)]
            if path not in made:
                made[path] = constant(model, _parameter_name(path), value.detach().cpu().numpy())
            set_input(node, 0, made[path])
        _set_params(model, node, paths[id(node)], modules[paths[id(node)]])


def _set_params(model: Model, node: gs.Node, path: str, module: FakeQuantize) -> None:
    if isinstance(module, Nnie):
        reach = fake_quantize_log.checked(float(module.data_max), node.inputs[0])
        set_input(node, 1, constant(model, f"{node.name}.data_max", np.asarray(reach, np.float32)))
        return
    params = module.qparams(node.inputs[0].name)
    exported = node.attrs["quant_min"], node.attrs["quant_max"]
    if (params.lo, params.hi) != exported:
        raise UnsupportedModelError(
            f"quantizer '{path}' specifies {params.lo}..{params.hi}, but was exported with "
            f"{exported[0]}..{exported[1]}",
            fix="let its qparams() describe what its forward() computes",
        )
    fake_quantize.set_params(model, node, params)


def _holds(tensor: gs.Tensor, value: Tensor, known: Container[str]) -> bool:
    """Whether `tensor` is a parameter of the model with exactly this value."""
    if not isinstance(tensor, gs.Constant) or tensor.name not in known:
        return False
    current = array(tensor)
    return current is not None and np.array_equal(current, value.detach().cpu().numpy())


def _parameter_name(path: str) -> str:
    """'stem.0.weight' for the quantizer 'stem.0.weight_fake_quant'."""
    layer, _, attribute = path.rpartition(".")
    part = "bias" if attribute.startswith("bias") else "weight"
    return f"{layer}.{part}" if layer else part


def _forget_unread(model: Model) -> None:
    """Drop expressions and initializers without consumers, so that their names are free."""
    model.sweep()
    for graph in model.graphs():
        constants = graph.record.constants
        constants[:] = [c for c in constants if is_read(c) or model.is_output(c)]


def _varying(model: Model) -> set[int]:
    """Tensors (by `id`) that depend on an input of the model or on another quantizer."""
    stack = [t for t in model.graph.inputs if not isinstance(t, gs.Constant)]
    stack += [t for node in model.nodes(*_QUANTIZERS) for t in node.outputs]
    found: set[int] = set()
    while stack:
        tensor = stack.pop()
        if id(tensor) not in found:
            found.add(id(tensor))
            stack.extend(made for node in tensor.outputs for made in node.outputs)
    return found


def name_parameters(model: Model, paths: dict[int, str], known: Container[str]) -> None:
    """Name folded weights and biases after their layer instead of 'onnx::Conv_497'."""
    named: set[int] = set()
    for node in model.nodes(*_LAYERS):
        layer = paths.get(id(node), "")
        for tensor, part in zip(node.inputs[1:3], ("weight", "bias"), strict=False):
            folded = isinstance(tensor, gs.Constant) and tensor.name not in known
            if not folded or id(tensor) in named:
                continue
            named.add(id(tensor))
            tensor.name = model.fresh_name(f"{layer}.{part}" if layer else part)
