"""Fuses float modules along an FX graph, and swaps float modules for quantized ones.

    fuse(graph_module, backend)       Conv -> BN -> ReLU nodes become one node with a fused module
    swap(model, make_weight_quantizer) every layer and fused layer becomes its quantized form

Both read a table of patterns (`PATTERNS`), work in place and return a report: a line per fused
chain, and a line with the reason for each batch norm or layer that was left. `swap` needs no graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, fx, nn

from onnxq.errors import UnsupportedModelError
from torch_bridge.capture.value_types import SAMPLE
from torch_bridge.insertion.pattern import Pattern
from torch_bridge.insertion.pattern_table import PatternTable
from torch_bridge.insertion.patterns import PATTERNS
from torch_bridge.nn.bn_fold import is_batch_norm
from torch_bridge.nn.children import places
from torch_bridge.nn.layer_op import why_not_quantizable
from torch_bridge.nn.plain_type import plain_type
from torch_bridge.nn.qat import QatLayer

__all__ = ["PATTERNS", "from_float_names", "fuse", "leaf_types", "swap"]

MakeWeightQuantizer = Callable[[nn.Module, int | None], nn.Module | None]
"""Quantizer of a float layer's weight, given the channel axis; None leaves the layer float."""
MakeQuantizer = Callable[[nn.Module], nn.Module | None]
"""Quantizer of a float layer's bias or input; None for none."""


def leaf_types(
    backend: str | None = None, table: PatternTable | None = None
) -> set[type[nn.Module]]:
    """Module classes that a tracer must not look into, for `fuse` to see them."""
    patterns = (table or PATTERNS).of(backend)
    links = {kind for p in patterns for link in p.chain for kind in link.types}
    return links | {kind for p in patterns for kind in (*p.float_types, p.qat)}


# -- fusion along a graph ------------------------------------------------------------------------


def fuse(
    graph_module: fx.GraphModule, backend: str | None = None, table: PatternTable | None = None
) -> list[str]:
    """Replace every chain of the table by its fused float module, in place.

    The fused module takes the place (and the name) of the chain's first module; the others are
    deleted if nothing else uses them. A chain is fused only if each result has one consumer and
    each module is called once.
    """
    report: list[str] = []
    refused: dict[fx.Node, str] = {}
    modules = dict(graph_module.named_modules(remove_duplicate=False))
    called = [n for n in graph_module.graph.nodes if n.op == "call_module"]
    calls = Counter(id(modules[str(n.target)]) for n in called)  # one module may have several names
    patterns = [p for p in (table or PATTERNS).of(backend) if p.fused is not None]
    for node in called:
        for pattern in patterns:
            found = _match(pattern, node, modules)
            if found is None:
                continue
            nodes, parts = found
            reason = _objection(pattern, nodes, parts, calls)
            if not reason:
                report.append(_fuse(graph_module, pattern, nodes, parts))
                modules[str(node.target)] = graph_module.get_submodule(str(node.target))
                break
            refused.update(
                {n: reason for n, m in zip(nodes, parts, strict=True) if is_batch_norm(m)}
            )
    report += _left(graph_module, modules, refused)
    graph_module.graph.lint()
    graph_module.recompile()
    return report


def _match(
    pattern: Pattern, first: fx.Node, modules: dict[str, nn.Module]
) -> tuple[list[fx.Node], list[nn.Module]] | None:
    """The nodes and modules of `pattern`'s chain that starts at `first`.

    Each node after the first reads the one before it and nothing else.
    """
    nodes, parts = [], []
    candidates = [first]
    for link in pattern.chain:
        for node in candidates:
            module = link.module(node, modules)
            if module is not None:
                break
        else:
            return None
        nodes.append(node)
        parts.append(module)
        candidates = [user for user in node.users if user.all_input_nodes == [node]]
    return nodes, parts


def _objection(
    pattern: Pattern, nodes: list[fx.Node], parts: list[nn.Module], calls: Counter[int]
) -> str:
    for node in nodes[:-1]:
        if len(node.users) > 1:
            others = ", ".join(f"'{user.name}'" for user in node.users if user not in nodes)
            return f"'{node.name}' has other consumers: {others}"
    for node, module in zip(nodes, parts, strict=True):
        holds_state = any(True for _ in module.parameters()) or any(True for _ in module.buffers())
        if holds_state and calls[id(module)] > 1:
            return f"'{node.target}' is called {calls[id(module)]} times"
    return pattern.objection(*parts)


def _fuse(
    graph_module: fx.GraphModule, pattern: Pattern, nodes: list[fx.Node], parts: list[nn.Module]
) -> str:
    first, last = nodes[0], nodes[-1]
    names = [str(n.target) if n.op == "call_module" else n.name for n in nodes]
    fused = pattern.fused.from_float(*parts)
    fused.fused_pattern = pattern.name
    fused.fused_from = _origins(fused, names, parts)
    graph_module.set_submodule(names[0], fused)
    first.meta[SAMPLE] = last.meta.get(SAMPLE)  # what it must compute
    last.replace_all_uses_with(first)
    for node in reversed(nodes[1:]):
        graph_module.graph.erase_node(node)
    for node in nodes[1:]:
        _delete_unused(graph_module, node)
    return f"{' + '.join(names)}: fused ({pattern.name})"


def _origins(fused: nn.Module, names: list[str], parts: list[nn.Module]) -> dict[str, str]:
    """The name in the float model of each child of `fused` that has a state."""
    origin = {id(module): name for name, module in zip(names, parts, strict=True)}
    children = ((name, child) for name, child in fused.named_children() if child.state_dict())
    return {name: origin[id(child)] for name, child in children if id(child) in origin}


def _delete_unused(graph_module: fx.GraphModule, node: fx.Node) -> None:
    if node.op != "call_module":
        return
    target = str(node.target)
    used = (str(n.target) for n in graph_module.graph.nodes if n.op in ("call_module", "get_attr"))
    if not any(f"{name}.".startswith(f"{target}.") for name in used):
        graph_module.delete_submodule(target)


def _left(
    graph_module: fx.GraphModule, modules: Mapping[str, nn.Module], refused: Mapping[fx.Node, str]
) -> list[str]:
    """A line for each batch norm still in the graph."""
    lines = []
    for node in graph_module.graph.nodes:
        if node.op == "call_module" and is_batch_norm(modules.get(str(node.target))):
            producers = ", ".join(f"'{n.name}'" for n in node.all_input_nodes)
            reason = refused.get(
                node, f"its input {producers} is not the result of a layer to fold it into"
            )
            lines.append(f"{node.target}: batch norm left, {reason}")
    return lines


def from_float_names(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Any]:
    """A float model's state with the names of the fused `model`: bn1.weight -> conv1.bn.weight."""
    moved: dict[str, str] = {}
    for path, module in model.named_modules():
        for child, name in getattr(module, "fused_from", {}).items():
            moved[f"{name}."] = f"{path}.{child}."
    renamed = {}
    for key, value in state.items():
        old = next((name for name in moved if key.startswith(name)), "")
        renamed[moved[old] + key[len(old) :] if old else key] = value
    return renamed


# -- swapping modules ----------------------------------------------------------------------------


def swap(
    model: nn.Module,
    make_weight_quantizer: MakeWeightQuantizer,
    *,
    make_bias_quantizer: MakeQuantizer | None = None,
    make_input_quantizer: MakeQuantizer | None = None,
    backend: str | None = None,
    table: PatternTable | None = None,
) -> list[str]:
    """Replace every layer and fused layer of `model` by its quantized form, in place.

    A module held at several places is replaced by one module at all of them. A module of a derived
    class is replaced only if it computes as its base; else it is reported and left.
    """
    patterns = (table or PATTERNS).of(backend)
    swaps = {kind: p for p in reversed(patterns) for kind in p.float_types}
    by_name = {pattern.name: pattern for pattern in patterns}
    if type(model) in swaps:
        raise UnsupportedModelError(
            f"the model is a single {type(model).__name__}, which cannot be replaced in place",
            fix="wrap it, for example in torch.nn.Sequential",
        )
    report: list[str] = []
    made: dict[int, nn.Module] = {}
    for place in places(model):
        child = place.child
        if id(child) in made:
            place.put(made[id(child)])
            continue
        if hasattr(child, "weight_fake_quant"):  # done already
            continue
        pattern = by_name.get(getattr(child, "fused_pattern", ""))
        if pattern is None and (kind := plain_type(child, swaps.keys())) is not None:
            pattern = swaps[kind]
        if pattern is None:
            report += _near_miss(place.path, child, swaps)
            continue
        reason = why_not_quantizable(child)
        weight = None if reason else make_weight_quantizer(child, pattern.axis(child))
        if weight is None:
            report += [f"{place.path}: left float, {reason}"] if reason else []
            continue
        has_bias = getattr(child, "bias", None) is not None or getattr(child, "bn", None)
        quantizers = {
            "weight": weight,
            "bias": make_bias_quantizer(child) if make_bias_quantizer and has_bias else None,
            "input": make_input_quantizer(child) if make_input_quantizer else None,
        }
        for part, quantizer in quantizers.items():
            if quantizer is not None and getattr(quantizer, "name", None) == "":
                named = f"{place.path}.{part}_fake_quant"
                quantizer.name = named  # type: ignore[assignment]
        quantized = pattern.qat.from_float(child, *quantizers.values())
        quantized.fused_from = getattr(child, "fused_from", {})
        quantized.fused_pattern = pattern.name
        made[id(child)] = quantized
        place.put(quantized)
    return report


def _near_miss(path: str, module: nn.Module, swaps: Mapping[type[nn.Module], Pattern]) -> list[str]:
    """A line for a subclass of a known layer, which is reported but not swapped."""
    known = next((kind for kind in swaps if isinstance(module, kind)), None)
    if known is None or isinstance(module, QatLayer):
        return []
    kind = type(module).__name__
    return [
        f"{path}: left float, {kind} is a subclass of {known.__name__} and computes something "
        f"else; torch_bridge.register_pattern adds a Pattern for {kind}"
    ]
