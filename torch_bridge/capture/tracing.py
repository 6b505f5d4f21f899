"""Turns a model into an FX graph; submodules that cannot be traced stay as they are.

    trace in train mode, trace in eval mode
      one fails inside a submodule       -> that submodule becomes a leaf, start again
      they differ inside a submodule     -> the same (it branches on self.training)
      they differ in True/False only     -> the value is read from the mode at run time
      one writes into buffers            -> the module that holds them becomes a leaf
      one fails in the model's own code  -> there is no graph

Each attempt traces a structural copy (the tensors are shared): a program that stores its results
in its modules would otherwise be left with placeholders of a failed attempt.
"""

from __future__ import annotations

import copy
import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, fx, nn

from onnxq.errors import OptionError
from torch_bridge.capture.argument_checks import Required, Specialised
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.mode_differences import OWNER, Untraceable, add_flags, reconcile
from torch_bridge.capture.quantized_graph import QuantizedGraph
from torch_bridge.capture.report import Leaf
from torch_bridge.nn.plain_type import plain_type
from torch_bridge.nn.written_buffers import WrittenBuffers

COST = (
    "layers with weights inside it are quantized with their inputs, but nothing is fused there, "
    "and its sums, pools and other functions stay float"
)


class LeafTracer(fx.Tracer):
    """A tracer that leaves some modules as they are and records which module it is in."""

    options: TraceOptions | None = None
    leaf_paths: frozenset[str] = frozenset()
    failed: str | None = None
    """Path of the innermost module whose code could not be traced."""

    def start(self, options: TraceOptions, leaf_paths: Iterable[str]) -> None:
        """Set the modules that become one node; call this before `trace`."""
        self.options = options
        self.leaf_paths = frozenset(leaf_paths)
        self.failed = None
        self.events: dict[str, list[str]] = defaultdict(list)
        self.stack = [""]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether `m` becomes one node."""
        if module_qualified_name in self.leaf_paths:
            return True
        known = None if self.options is None else self.options.takes_as_leaf(m)
        return super().is_leaf_module(m, module_qualified_name) if known is None else known

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Enter a module, or make it a node."""
        if not hasattr(self, "stack"):  # made by torch to read a pickled graph
            return super().call_module(m, forward, args, kwargs)
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return super().call_module(m, forward, args, kwargs)
        self.events[self.stack[-1]].append(f"calls {path}")
        self.events.setdefault(path, [])
        self.stack.append(path)
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = path if self.failed is None else self.failed
            raise
        finally:
            self.stack.pop()

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """Make a node, and record the module whose code made it."""
        node = super().create_node(*args, **kwargs)
        if hasattr(self, "stack"):
            node.meta[OWNER] = self.stack[-1]
            self.events[self.stack[-1]].append(f"{node.op} {node.target}")
        return node


class Traced(NamedTuple):
    """A graph, or None if the model's own code cannot be traced; and the modules left out of it."""

    graph_module: QuantizedGraph | None
    leaves: list[Leaf]
    cautions: Sequence[str] = ()
    """Ways in which the graph differs from the model."""


@dataclass(frozen=True)
class TraceOptions:
    """A user's options for the tracer."""

    leaf_types: tuple[type[nn.Module], ...] = ()
    layer_types: frozenset[type[nn.Module]] = frozenset()
    """Layers; a module of a derived class is a leaf only if it computes the same."""
    leaf_paths: frozenset[str] = frozenset()
    concrete_args: dict[str, Any] | None = None
    tracer: fx.Tracer | type[fx.Tracer] | None = None
    open_axes: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Axes of inputs, by name, that may have any length, though torch.export would fix them."""

    def takes_as_leaf(self, module: nn.Module) -> bool | None:
        """Whether `module` becomes one node; None if these options do not decide it."""
        if isinstance(module, self.leaf_types):
            return True
        if isinstance(module, tuple(self.layer_types)):
            return plain_type(module, self.layer_types) is not None
        return None


def trace(model: nn.Module, call: ExampleCall, options: TraceOptions) -> Traced:
    """The graph of `model` for calls like `call`; `model` itself is not changed."""
    found = _trace(model, options, call.concrete_args())
    if found.graph_module is None and options.concrete_args is None:
        # The model's own code branches on a number, or loops over a list of tensors.
        for containers in (False, True)[: 1 + call.has_containers]:
            more = call.concrete_args(numbers=True, containers=containers)
            if more != call.concrete_args():
                again = _trace(model, options, more)
                if again.graph_module is not None:
                    return again
    return found


def _trace(model: nn.Module, options: TraceOptions, concrete: dict[str, Any]) -> Traced:
    if options.concrete_args is not None:
        concrete = concrete | options.concrete_args
    # A tracer of the user's own may be made for one mode and have state: it runs once, as it is.
    modes = (None,) if isinstance(options.tracer, fx.Tracer) else (True, False)
    leaves: list[Leaf] = []
    skipped = set(options.leaf_paths)
    for _ in range(len(list(model.modules())) + 1):  # each round makes one more module a leaf
        constants: dict[str, Tensor] = {}
        try:
            graph = reconcile(
                *(
                    _attempt(model, m, options, frozenset(skipped), concrete, constants)
                    for m in modes
                )
            )
        except Untraceable as failure:
            skipped.add(failure.path)
            if not failure.path:
                return Traced(None, [Leaf(failure.path, failure.reason, COST)])
            if not failure.harmless:
                leaves.append(Leaf(failure.path, failure.reason, COST))
        else:
            try:
                return Traced(_graph_module(model, graph, concrete, constants), leaves)
            except (
                SyntaxError
            ) as error:  # FX cannot take lists apart beside arguments with defaults
                return Traced(None, [Leaf("", in_one_line(error), COST)])
    raise AssertionError("tracing does not come to an end")


def _attempt(
    model: nn.Module,
    training: bool | None,
    options: TraceOptions,
    leaf_paths: frozenset[str],
    concrete: dict[str, Any],
    constants: dict[str, Tensor],
) -> tuple[fx.Graph, dict[str, list[str]]]:
    root = structural_copy(model)
    if training is not None:
        root.train(training)
    tracer = _tracer(options.tracer)
    if isinstance(tracer, LeafTracer):
        tracer.start(options, leaf_paths)
    buffers = WrittenBuffers(root)
    try:
        graph = tracer.trace(root, concrete_args=dict(concrete) or None)
    except Exception as error:
        path = getattr(tracer, "failed", None) or ""
        raise Untraceable(path, in_one_line(error)) from error
    finally:
        written = buffers.restore()
    for name in written:
        owner = name.rpartition(".")[0]
        path = "" if inside(owner, leaf_paths) else owner  # then other code writes into it
        raise Untraceable(path, f"it writes into its buffer '{name}'")
    # Tensors written in the code: the tracer keeps them as attributes of what it traced.
    kept = {name for name in vars(root) if name.startswith("_tensor_constant")}
    constants.update({name: getattr(root, name) for name in kept - set(vars(model))})
    return graph, getattr(tracer, "events", {})


def in_one_line(error: Exception) -> str:
    """An error of torch, for a sentence."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _tracer(asked: fx.Tracer | type[fx.Tracer] | None) -> fx.Tracer:
    if asked is None:
        return LeafTracer()
    if isinstance(asked, fx.Tracer):
        return asked
    if not (isinstance(asked, type) and issubclass(asked, fx.Tracer)):
        raise OptionError(
            f"tracer={asked!r} is not a torch.fx.Tracer",
            fix="pass a subclass of torch.fx.Tracer, or an object of one",
        )
    kind = type(f"Leaf{asked.__name__}", (LeafTracer, asked), {"__qualname__": "<locals>"})
    made: fx.Tracer = kind()
    return made


def structural_copy(model: nn.Module) -> nn.Module:
    """A copy of the modules that holds the same parameters and buffers."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def _graph_module(
    model: nn.Module, graph: fx.Graph, concrete: dict[str, Any], constants: dict[str, Tensor]
) -> QuantizedGraph:
    """A GraphModule with the signature of `model` and modules in the modes they had."""
    root = structural_copy(model)
    for name, value in constants.items():
        root.register_buffer(name, value, persistent=False)
    add_flags(root, graph)
    _guard_arguments(root, graph, concrete)
    made = QuantizedGraph(root, graph, type(model).__name__)
    for path, module in made.named_modules():
        module.training = root.get_submodule(path).training
    made.graph.lint()
    return made


def _guard_arguments(root: nn.Module, graph: fx.Graph, concrete: dict[str, Any]) -> None:
    """Restore the names of arguments, and insert checks of them that can be pickled."""
    has_default = False
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for node, name in zip(placeholders, _argument_names(root, concrete), strict=True):
        if name in concrete and not isinstance(concrete[name], list | tuple | dict):
            for user in list(node.users):
                for check in list(user.users):
                    graph.erase_node(check)
                graph.erase_node(user)
            with graph.inserting_before(node):
                argument = graph.create_node("placeholder", name, node.args)
            graph.erase_node(node)
            _insert_check(root, graph, argument, Specialised(name, concrete[name]))
        elif has_default and not node.args and not str(node.target).startswith("*"):
            # Only a keyword-only argument can follow one with a default; FX has none of those.
            node.args = (None,)
            check = _insert_check(root, graph, node, Required(str(node.target)))
            node.replace_all_uses_with(check)
            check.args = (node,)
        has_default = has_default or bool(node.args)


def _argument_names(root: nn.Module, concrete: dict[str, Any]) -> list[str]:
    """The argument that each placeholder stands for; FX numbers those with a fixed value."""
    parameters = list(inspect.signature(root.forward).parameters.values())
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters.sort(key=lambda p: p.kind in starred)
    return [p.name for p in parameters for _ in range(_leaf_count(concrete.get(p.name)))]


def _leaf_count(value: Any) -> int:
    if isinstance(value, list | tuple | dict):
        return sum(map(_leaf_count, value.values() if isinstance(value, dict) else value))
    return 1


def _insert_check(
    root: nn.Module, graph: fx.Graph, node: fx.Node, module: Specialised | Required
) -> fx.Node:
    name = fresh_name(root, f"{module.argument}_{type(module).__name__.lower()}")
    root.add_module(name, module.train(root.training))
    last = [n for n in graph.nodes if n.op == "placeholder"][-1]
    with graph.inserting_after(last):
        return graph.call_module(name, (node,))


def fresh_name(module: nn.Module, base: str) -> str:
    """A name that no attribute of `module` has."""
    name, number = base, 0
    while hasattr(module, name):
        number += 1
        name = f"{base}_{number}"
    return name


def inside(path: str, leaves: Iterable[str]) -> bool:
    """Whether `path` is one of `leaves` or below one."""
    return any(not leaf or path == leaf or path.startswith(f"{leaf}.") for leaf in leaves)
