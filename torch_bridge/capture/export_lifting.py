"""Turns a program of torch.export back into a graph of modules and functions, as FX traces it.

onnxq_capture::leaf        a call of the module it stands for
aten operators             the functions of torch that they come from
lifted parameters          attributes of the model, by their path
sizes of inputs            x.size(0), read at run time
code under no_grad         the same nodes, and detach after them
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from torch_bridge.capture.leaf_calls import LEAF, LeafCalls, with_values
from torch_bridge.capture.mode_differences import OWNER
from torch_bridge.functions import aten_functions

_REPEATED = re.compile(r"@\d+$")


_WRITABLE = (fx.Node, type(None), bool, int, float, str, torch.dtype, torch.device, slice)
"""Types of values that the code of a graph can contain."""


class NotLiftable(Exception):
    """The program contains something that has no form in a graph of modules and functions."""


@dataclass(frozen=True)
class _Attribute:
    """A parameter, buffer or constant: every reader gets a node of its own, as in FX."""

    path: str


@dataclass
class Lifter:
    """Adds the nodes of one exported program to `graph`."""

    graph: fx.Graph
    model: nn.Module
    """The user's model, which holds the attributes that the graph reads."""
    inputs: Sequence[fx.Node]
    """A node for each tensor of the call."""
    prefix: str
    """The path of the user's model in the exported one, with a dot."""
    calls: LeafCalls
    constants: dict[str, Tensor] = field(default_factory=dict)
    """Tensors written in the code, by the names that the graph reads them by."""
    events: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The nodes that the code of each module made, in order."""
    _values: dict[fx.Node, Any] = field(default_factory=dict)
    _owner: str = ""

    def lift(self, program: torch.export.ExportedProgram) -> list[Any]:
        """The values that the program returns."""
        self._sizes = {
            (node, axis): self._made(self.graph.call_method("size", (node, axis)), note=False)
            for node, tensor in zip(self.inputs, self._examples(program), strict=True)
            for axis in range(tensor.dim())
        }
        inputs = iter(self.inputs)
        for node, spec in zip(
            program.graph.find_nodes(op="placeholder"),
            program.graph_signature.input_specs,
            strict=True,
        ):
            if spec.kind is InputKind.USER_INPUT:
                self._values[node] = next(inputs)
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                self._values[node] = self._constant(str(spec.target), program)
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                self._values[node] = _Attribute(str(spec.target).removeprefix(self.prefix))
            else:
                raise NotLiftable(f"an input of kind {spec.kind.name}")
        return self._nodes(program.graph_module)

    def _examples(self, program: torch.export.ExportedProgram) -> list[Tensor]:
        specs = program.graph_signature.input_specs
        nodes = program.graph.find_nodes(op="placeholder")
        pairs = zip(nodes, specs, strict=True)
        return [n.meta["val"] for n, s in pairs if s.kind is InputKind.USER_INPUT]

    def _constant(self, target: str, program: torch.export.ExportedProgram) -> _Attribute:
        path = target.removeprefix(self.prefix)
        try:
            held = operator.attrgetter(path)(self.model)
        except AttributeError:
            held = None
        if isinstance(held, Tensor):  # an attribute that is neither parameter nor buffer
            return _Attribute(path)
        name = f"onnxq_constant_{len(self.constants)}"
        self.constants[name] = program.constants[target]
        return _Attribute(name)

    def _nodes(self, module: nn.Module) -> list[Any]:
        assert isinstance(module, fx.GraphModule)
        for node in module.graph.nodes:
            if node.op == "get_attr":
                self._values[node] = operator.attrgetter(node.target)(module)
            elif node.op == "call_function":
                self._values[node] = self._call(node)
            elif node.op == "output":
                return list(self._mapped(node.args[0]))
            elif node.op != "placeholder":
                raise NotLiftable(f"a node '{node.op}'")
        raise NotLiftable("a program without an output")

    def _call(self, node: fx.Node) -> Any:
        self._owner = self._path_of(node)
        if node.target is LEAF:
            return self._leaf(node)
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node):
            source = self._values[node.args[0]]
            if isinstance(source, list):
                return source[node.args[1]]  # type: ignore[index]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._inlined(node)
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name in aten_functions.CHECKS or self._counts_batches(node, name):
            return None
        if name == "contiguous" and not any(_changes(user) for user in node.users):
            return self._held(node.args[0])  # depends on strides, which differ between the modes
        if name == "cat" and isinstance(node.args[0], Sequence):
            parts = [part for part in node.args[0] if not _is_nothing(part)]
            if len(parts) == 1:
                return self._held(parts[0])
            node.args = (parts, *node.args[1:])
        args, kwargs = self._mapped(node.args), dict(self._mapped(node.kwargs))
        if name == "sym_size" and args in self._sizes:
            return self._sizes[args]
        if kwargs.get("device") is not None and self.inputs:
            # Made where the inputs are, so that the graph can be moved to another device.
            where = self.graph.call_function(getattr, (self.inputs[0], "device"))
            kwargs["device"] = self._made(where)
        target = node.target
        if name.endswith("_") and self._is_seen_by_nobody_else(node.args[0]):
            target = aten_functions.without_effect(target)
        made = aten_functions.call(self.graph, target, args, kwargs)
        return self._made(made) if isinstance(made, fx.Node) else made

    def _counts_batches(self, node: fx.Node, name: str) -> bool:
        """Whether a batch norm counts its batches here: only in training, and for nothing else."""
        held = self._held(node.args[0]) if name == "add_" else None
        return isinstance(held, _Attribute) and held.path.endswith("num_batches_tracked")

    def _is_seen_by_nobody_else(self, value: Any) -> bool:
        """Whether a change of `value` in place reaches no other reader: it is new, and read once.

        Out of place it is the same then, which is what FX makes of `x += y`.
        """
        if not isinstance(value, fx.Node) or len(value.users) > 1:
            return False
        if value.target is operator.getitem:
            source = value.args[0]
            if not isinstance(source, fx.Node) or source.target is not LEAF:
                return False
            path = self.calls.made[source.args[2]].path  # type: ignore[index]
            return any(True for _ in self.model.get_submodule(path).parameters())
        return aten_functions.makes_a_new_tensor(value.target)

    def _leaf(self, node: fx.Node) -> list[Any]:
        tensors, sizes, number = node.args
        call = self.calls.made[number]  # type: ignore[index]
        args, kwargs = with_values(call, self._mapped(tensors), self._mapped(sizes))
        for value in pytree.tree_leaves((args, kwargs)):
            if not isinstance(value, _WRITABLE):
                raise NotLiftable(f"'{call.path}' takes a {type(value).__name__}")
        self._owner = self._path_of(node, without=call.path)
        made = self._made(self.graph.call_module(call.path, tuple(args), kwargs))
        found = []
        for path, leaf in pytree.tree_flatten_with_path(call.result)[0]:
            if isinstance(leaf, torch.SymInt):
                raise NotLiftable(f"'{call.path}' returns a size")
            if isinstance(leaf, Tensor):
                found.append(self._part(made, path))
        return found

    def _part(self, value: fx.Node, path: Sequence[Any]) -> fx.Node:
        """One tensor in a nested result."""
        for key in path:
            attribute = isinstance(key, pytree.GetAttrKey)
            part = key.name if attribute else getattr(key, "idx", getattr(key, "key", None))
            reader = getattr if attribute else operator.getitem
            value = self._made(self.graph.call_function(reader, (value, part)))
        return value

    def _inlined(self, node: fx.Node) -> list[Any]:
        """The nodes of a part that runs with or without gradients or autocasting."""
        kind = str(node.target)
        if kind not in ("wrap_with_set_grad_enabled", "wrap_with_autocast"):
            raise NotLiftable(f"control flow of torch.export ({kind})")
        position = next(
            i for i, a in enumerate(node.args) if isinstance(self._value(a), fx.GraphModule)
        )
        body = self._value(node.args[position])
        given = [self._held(a) for a in node.args[position + 1 :]]
        for inner, value in zip(body.graph.find_nodes(op="placeholder"), given, strict=True):
            self._values[inner] = value
        results = self._nodes(body)
        if kind == "wrap_with_set_grad_enabled" and node.args[0] is False:
            return [
                self._made(self.graph.call_method("detach", (r,))) if isinstance(r, fx.Node) else r
                for r in results
            ]
        return results

    def _held(self, value: Any) -> Any:
        return self._values[value] if isinstance(value, fx.Node) else value

    def _value(self, value: Any) -> Any:
        held = self._held(value)
        if isinstance(held, _Attribute):
            return self._made(self.graph.get_attr(held.path))
        return held

    def _mapped(self, value: Any) -> Any:
        return fx.map_arg(value, self._value)

    def _made(self, node: fx.Node, *, note: bool = True) -> fx.Node:
        if OWNER not in node.meta:
            node.meta[OWNER] = self._owner
            if note:
                self.events[self._owner].append(f"{node.op} {node.target}")
        return node

    def _path_of(self, node: fx.Node, without: str | None = None) -> str:
        """The module whose code made `node`; that of a leaf is the one that calls it."""
        stack = [str(path) for path, _ in node.meta.get("nn_module_stack", {}).values()]
        paths = [_REPEATED.sub("", path) for path in stack]
        inner = [p.removeprefix(self.prefix) for p in paths if p.startswith(self.prefix)]
        if without is not None and inner and inner[-1] == without:
            inner.pop()
        return inner[-1] if inner else ""


def _changes(user: fx.Node) -> bool:
    """Whether `user` may change what it reads in place."""
    packet = getattr(user.target, "overloadpacket", None)
    return packet is None or packet.__name__.endswith("_")


def _is_nothing(part: Any) -> bool:
    """Whether `part` is torch.tensor([]), with which lists of tensors to join often start."""
    value = part.meta.get("val") if isinstance(part, fx.Node) else None
    return isinstance(value, Tensor) and value.dim() == 1 and value.shape[0] == 0
