"""One run of a model by torch.export, in one mode, as a graph of modules and functions."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import logging
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental import _config as _symbols

from torch_bridge.capture.argument_checks import Assembled
from torch_bridge.capture.argument_nodes import ArgumentNodes
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.export_lifting import Lifter, NotLiftable
from torch_bridge.capture.flat_call import is_structure, leaves, rebuilt
from torch_bridge.capture.leaf_calls import LeafCalls
from torch_bridge.capture.mode_differences import OWNER, Untraceable
from torch_bridge.capture.tracing import TraceOptions, in_one_line, inside, structural_copy
from torch_bridge.nn.hooks import drop_hooks
from torch_bridge.nn.written_buffers import is_replaced

_PREFIX = "model."
_KINDS = (Tensor, torch.SymInt)
_LARGEST_RANK = 3
_LOGGERS = ("torch.fx.experimental.symbolic_shapes", "torch._export.non_strict_utils")
_SIZE = re.compile(r"L\['tensors'\]\[(\d+)\]\.size\(\)\[(\d+)\]")


class _Flat(nn.Module):
    """A model as a function of the tensors of an example call."""

    def __init__(
        self,
        model: nn.Module,
        call: ExampleCall,
        keep: Callable[[Any], None],
        replaced: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.model = model
        self.call = call
        self.keep = keep  # torch.export restores attributes that change while it runs
        self.replaced = replaced
        self.shapes = {name: buffer.shape for name, buffer in model.named_buffers()}

    def forward(self, *tensors: Tensor) -> tuple[Any, ...]:
        given = rebuilt(self.call.given, iter(tensors))
        bound = inspect.BoundArguments(self.call.signature, given)
        buffers = dict(self.model.named_buffers())
        result = self.model(*bound.args, **bound.kwargs)
        self.keep(result)
        for name, now in self.model.named_buffers():
            known = name in buffers and self.shapes.get(name) == now.shape
            if known and is_replaced(buffers[name], now):
                self.replaced(name)
        return tuple(value for _, value in leaves(result, is_leaf=_is_value))


class ExportAttempt:
    """The graph of a model in one mode.

    Attributes:
        graph: the graph, without the modules that it calls.
        arguments: its placeholders, and the modules that check them.
        constants: tensors written in the code, by name.
        events: the nodes and calls that the code of each module made, in order.
        conditions: what must hold for the sizes of inputs.
        dropped: results that a graph cannot return.
    """

    def __init__(
        self,
        model: nn.Module,
        call: ExampleCall,
        training: bool,
        leaf_paths: frozenset[str],
        options: TraceOptions,
    ) -> None:
        self.graph = fx.Graph()
        self.arguments = ArgumentNodes(self.graph, call)
        self.called: dict[str, list[str]] = defaultdict(list)
        self.failed: str | None = None
        root = structural_copy(model).train(training)
        with LeafCalls() as calls:
            self._watch(root, calls, options, leaf_paths)
            results: list[Any] = []
            replaced: list[str] = []
            flat = _Flat(root, call, results.append, replaced.append).train(training)
            given = list(leaves(call.given))
            tensors = [tensor for _, tensor in given]
            self.open = [_open_axes(t, options.open_axes.get(".".join(p), ())) for p, t in given]
            try:
                program = _exported(flat, tensors, self.open)
            except Exception as error:
                raise Untraceable(self.failed or "", in_one_line(error)) from error
            for name in replaced:  # the program does not contain it
                owner = name.rpartition(".")[0]
                if not inside(owner, leaf_paths):
                    reason = f"it puts another tensor in the place of its buffer '{name}'"
                    raise Untraceable(owner, reason)
            lifter = Lifter(self.graph, model, self.arguments.tensors, _PREFIX, calls)
            try:
                values = lifter.lift(program)
            except NotLiftable as error:
                raise Untraceable("", str(error)) from error
        self.constants = lifter.constants
        self.events = {path: lifter.events.get(path, []) for path in ("", *self.called)}
        for path, names in self.called.items():
            self.events[path] = self.events[path] + names
        self.conditions = self._conditions(program, tensors)
        result = results[-1]
        self.dropped = [".".join(path) for path, _ in leaves(result, is_leaf=_is_stranger)]
        self._return(rebuilt(result, itertools.repeat(None), _is_stranger), values)

    def _watch(
        self, root: nn.Module, calls: LeafCalls, options: TraceOptions, leaf_paths: frozenset[str]
    ) -> None:
        """Make leaves single operators, and record which of the other modules calls which.

        A module may run without leaving a node, and the one that fails has to be named.
        """
        stack = [""]

        def watched(path: str, module: nn.Module) -> None:
            compute = module.forward

            @functools.wraps(compute)
            def forward(*args: Any, **kwargs: Any) -> Any:
                self.called[stack[-1]].append(f"calls {path}")
                self.called.setdefault(path, [])
                stack.append(path)
                try:
                    return compute(*args, **kwargs)
                except Exception:
                    self.failed = path if self.failed is None else self.failed
                    raise
                finally:
                    stack.pop()

            module.forward = forward

        leaves_: list[str] = []
        for path, module in list(root.named_modules()):
            if not path or inside(path, leaves_):
                continue
            if path in leaf_paths or _is_leaf(module, options):
                leaves_.append(path)
                drop_hooks(module)  # the graph calls the leaf itself, and that its hooks
                calls.replace(path, module)
            else:
                watched(path, module)

    def _conditions(
        self, program: torch.export.ExportedProgram, tensors: Sequence[Tensor]
    ) -> list[str]:
        made_on_sizes = getattr(program, "_guards_code", None)
        if made_on_sizes is None:
            raise Untraceable("", f"torch {torch.__version__} does not tell which sizes it fixed")
        names = self.arguments.names
        fixed = [
            f"{name}.shape[{axis}] == {tensor.shape[axis]}"
            for name, tensor, open_ in zip(names, tensors, self.open, strict=True)
            for axis in range(tensor.dim())
            if axis not in open_
        ]
        return fixed + [
            _SIZE.sub(lambda m: f"{names[int(m[1])]}.shape[{m[2]}]", code) for code in made_on_sizes
        ]

    def _return(self, result: Any, values: Sequence[Any]) -> None:
        """The output node; objects other than tuples, lists and dicts are made by a module."""
        if _is_plain(result):
            self.graph.output(rebuilt(result, iter(values), _is_value))
            return
        template = rebuilt(result, iter([torch.empty(0)] * len(values)), _is_value)
        self.arguments.modules["onnxq_result"] = Assembled(template)
        node = self.graph.call_module("onnxq_result", tuple(values))
        node.meta[OWNER] = ""
        self.graph.output(node)


def _is_leaf(module: nn.Module, options: TraceOptions) -> bool:
    """Whether `module` becomes one node: as in FX, but layers of torch made of layers do not."""
    known = options.takes_as_leaf(module)
    of_torch = type(module).__module__.startswith("torch.nn") and not any(module.children())
    return of_torch if known is None else known


def _exported(
    flat: nn.Module, tensors: list[Tensor], open_axes: Sequence[set[int]]
) -> torch.export.ExportedProgram:
    axes = tuple(dict.fromkeys(sorted(each), torch.export.Dim.AUTO) for each in open_axes)
    # By default sizes that are equal in the example are taken to be equal in every call.
    apart = _symbols.patch(use_duck_shape=False)  # type: ignore[attr-defined]
    with warnings.catch_warnings(), apart, _quiet():
        warnings.simplefilter("ignore")
        return torch.export.export(flat, tuple(tensors), dynamic_shapes=(axes,), strict=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch logs and prints about an attempt: the report says why it failed.

    torch prints the graph up to the failure to stderr; what else was printed there is shown.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    printed = io.StringIO()
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with contextlib.redirect_stderr(printed):
            yield
    except Exception as error:
        graph = str(getattr(error, "partial_fx_graph", ""))
        told = printed.getvalue()
        sys.stderr.write(told.replace(f"{graph}\n", "") if graph else told)
        raise
    else:
        sys.stderr.write(printed.getvalue())
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _open_axes(tensor: Tensor, asked: Collection[int]) -> set[int]:
    """The axes that may have any length: all, but of images and videos the batch and those asked.

    Every strided layer adds a division to the size of an image, and torch takes minutes to reason
    about tens of them.
    """
    known = range(tensor.dim() if tensor.dim() <= _LARGEST_RANK else 1)
    return {*known, *(axis % tensor.dim() for axis in asked)}


def _is_plain(value: Any) -> bool:
    """Whether a graph can return `value` by itself: nested tuples, lists and dicts."""
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (*_KINDS, bool, int, float, str))


def _is_value(value: Any) -> bool:
    return isinstance(value, _KINDS)


def _is_stranger(value: Any) -> bool:
    """Whether `value` is neither made of tensors nor a constant: a cache of keys and values."""
    known = (*_KINDS, type(None), bool, int, float, str, bytes, torch.dtype, torch.device)
    return not is_structure(value) and not isinstance(value, known)
