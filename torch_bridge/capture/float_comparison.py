"""Compares a prepared model, whose quantizers are off, with the float model that it was made of.

With its quantizers off, every layer must compute what the float layers computed that it replaces.
The float values are those of the run that marked the graph; one more run of the example, through
the prepared model, compares them node by node. The error of a node is

    e = max |y - y_float| / max |y_float|

A replaced layer is wrong if e is more than `TOLERANCE` and 100 times the error of what it reads:
rounding that grows from layer to layer is not its fault. Other nodes with such a jump, and layers
that differ when they run once more, draw random numbers or keep a state: that is only reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from onnxq.errors import OnnxqError, UnsupportedModelError
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.flat_call import leaves
from torch_bridge.capture.value_types import SAMPLE, ExampleRun, sample

TOLERANCE = 1e-3
"""Folding a batch norm moves float32 results by some 1e-6; a wrong function by far more than this.
For narrower types it is the root of their resolution."""
_JUMP = 100


@dataclass(frozen=True)
class Difference:
    """How far some values are from those of the float model, and where they are farthest."""

    error: float
    found: float
    expected: float

    @classmethod
    def of(cls, value: Tensor, expected: Tensor) -> Difference:
        """The difference of two samples."""
        if value.shape != expected.shape:
            return cls(torch.inf, torch.nan, torch.nan)
        if not value.numel():
            return cls(0.0, 0.0, 0.0)
        a, b = value.double(), expected.double()
        same = (a == b) | (a.isnan() & b.isnan())
        apart = torch.where(same, 0.0, (a - b).abs().nan_to_num(torch.inf))
        finite = b[b.isfinite()].abs()
        largest = float(finite.max()) if finite.numel() else 0.0
        at = int(apart.argmax())
        worst = float(apart[at])
        error = worst / (largest or 1.0)  # a layer that starts as zero folds to nearly zero
        return cls(error, float(a[at]), float(b[at]))

    def exceeds(self, before: float, dtype: torch.dtype) -> bool:
        """Whether it is more than rounding, after inputs that were off by `before`."""
        tolerance = max(TOLERANCE, torch.finfo(dtype).eps ** 0.5)
        return self.error > tolerance and self.error > _JUMP * before


def check_graph(graph_module: fx.GraphModule, call: ExampleCall) -> list[str]:
    """Compare a prepared graph with the float one; what cannot be compared, in words."""
    run = _Comparison(graph_module, call)
    try:
        run.run_example()
    finally:
        for node in graph_module.graph.nodes:
            node.meta.pop(SAMPLE, None)
    return _not_compared(run.unstable)


class _Comparison(ExampleRun):
    """Compares every node with its sample; raises at the first layer that is wrong."""

    def __init__(self, graph_module: fx.GraphModule, call: ExampleCall) -> None:
        super().__init__(graph_module, call)
        self.errors: dict[fx.Node, float] = {}
        self.unstable: list[str] = []

    def run_node(self, n: fx.Node) -> Any:
        try:
            value = super().run_node(n)
        except OnnxqError:
            raise
        except Exception as error:
            module = self._replaced(n)
            if module is None:
                raise
            what = f"fails: {type(error).__name__}: {error}".partition("\n")[0]
            raise _error(str(n.target), module, what) from error
        before = max((self.errors[each] for each in n.all_input_nodes), default=0.0)
        expected = n.meta.get(SAMPLE)
        if expected is None or not isinstance(value, Tensor):
            module = None if expected is None else self._replaced(n)
            if module is not None:
                raise _no_tensor(str(n.target), module, type(value))
            self.errors[n] = before
            return value
        found = Difference.of(sample(value), expected)
        self.errors[n] = found.error
        if found.exceeds(before, expected.dtype):
            module = self._replaced(n)
            if module is not None and self._is_steady(n, value):
                raise _wrong(str(n.target), module, found)
            self.unstable.append(n.name)
        return value

    def _is_steady(self, n: fx.Node, value: Tensor) -> bool:
        """Whether a node computes the same once more."""
        again = super().run_node(n)
        return not Difference.of(sample(again), sample(value)).exceeds(0.0, value.dtype)

    def _replaced(self, n: fx.Node) -> nn.Module | None:
        """The module that a node calls, if it is not the float model's own."""
        module = self.fetch_attr(str(n.target)) if n.op == "call_module" else None
        return module if module is not None and _is_replaced(module) else None


def check_modules(prepared: nn.Module, model: nn.Module, call: ExampleCall) -> list[str]:
    """Compare a model without a graph by its results; only if they differ, layer by layer."""
    expected = dict(leaves(call.result(model)))
    found = dict(leaves(call.run(prepared)))
    apart = [".".join(path) or "the result" for path in expected if _differs(path, found, expected)]
    if not apart:
        return []
    floats, values, again = (_results(each, call) for each in (model, prepared, prepared))
    for path, value in values.items():
        module = prepared.get_submodule(path)
        if not isinstance(floats.get(path), Tensor) or not _is_replaced(module):
            continue
        if not isinstance(value, Tensor):
            raise _no_tensor(path, module, value)
        difference = Difference.of(value, floats[path])
        if not difference.exceeds(0.0, value.dtype):
            continue
        if Difference.of(again[path], value).exceeds(0.0, value.dtype):
            break  # those after it read what differs
        raise _wrong(path, module, difference)
    return _not_compared(apart)


def _differs(
    path: tuple[str, ...], found: dict[tuple[str, ...], Tensor], expected: dict[Any, Tensor]
) -> bool:
    value, wanted = found.get(path), expected[path]
    if not wanted.is_floating_point():
        return False
    return value is None or Difference.of(sample(value), sample(wanted)).exceeds(0.0, wanted.dtype)


def _results(model: nn.Module, call: ExampleCall) -> dict[str, Any]:
    """A sample of the first result of every module, in the order of the calls.

    Of what is no tensor of floats, the type.
    """
    results: dict[str, Any] = {}

    def watch(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            is_float = isinstance(output, Tensor) and output.is_floating_point()
            results.setdefault(path, sample(output) if is_float else type(output))

        return hook

    hooks = [m.register_forward_hook(watch(p)) for p, m in model.named_modules() if p]
    try:
        call.run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return results


def _is_replaced(module: nn.Module) -> bool:
    """Whether `module` was made by a pattern, or holds a layer that was."""
    return any(map(_pattern, module.modules()))


def _pattern(module: nn.Module) -> str:
    """The name of the pattern that made a module."""
    return str(getattr(module, "fused_pattern", ""))


def _no_tensor(path: str, module: nn.Module, given: type) -> UnsupportedModelError:
    returned = "None" if given is type(None) else f"a {given.__name__}"
    return _error(path, module, f"returns {returned}, where the float model has a tensor")


def _wrong(path: str, module: nn.Module, found: Difference) -> UnsupportedModelError:
    if math.isnan(found.expected):
        what = "gives a tensor of another shape"
    else:
        what = f"gives {found.found:.6g} instead of {found.expected:.6g}"
        what += f", off by {found.error:.2g} of the largest value"
    return _error(path, module, f"computes something else than the float model: it {what}")


def _error(path: str, module: nn.Module, what: str) -> UnsupportedModelError:
    """The error about a layer that was replaced, or about a module with such layers."""
    made = {where: _pattern(each) for where, each in module.named_modules() if _pattern(each)}
    kinds = " and ".join(sorted({type(module.get_submodule(where)).__name__ for where in made}))
    names = " and ".join(f"'{name}'" for name in sorted(set(made.values())))
    return UnsupportedModelError(
        f"'{path}' (a {kinds}, made by the pattern {names}) {what}. This is on the example inputs, "
        "in eval mode, with all quantizers off",
        fix=f"let from_float of {kinds} and of the fused class take over everything that the float "
        "modules hold, and forward return the same in eval mode. To do without the pattern, leave "
        "it out of patterns=, or, if it is registered, call "
        f"torch_bridge.PATTERNS.remove({names.partition(' and ')[0]})",
    )


def _not_compared(names: list[str]) -> list[str]:
    if not names:
        return []
    return [
        f"what depends on {', '.join(repr(name) for name in names[:5])} could not be compared with "
        "the float model: it differs from run to run"
    ]
