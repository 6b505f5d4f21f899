"""The example call that a model is prepared with, and the arguments that tracing may fix."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from onnxq.errors import OptionError, near_matches
from torch_bridge.capture.flat_call import leaves, rebuilt
from torch_bridge.nn.written_buffers import is_replaced
from torch_bridge.state import evaluating

FIXED = (type(None), bool, str)
"""Types of arguments that programs branch on: the graph is made for the value they have."""


class ExampleCall:
    """One call of a model, with its arguments by name."""

    def __init__(
        self, model: nn.Module, args: Sequence[Any] | Tensor, kwargs: Mapping[str, Any] | None
    ) -> None:
        self.args = (args,) if isinstance(args, Tensor) else tuple(args)
        self.kwargs = dict(kwargs or {})
        self.signature = inspect.signature(model.forward)
        try:
            bound = self.signature.bind(*self.args, **self.kwargs)
        except TypeError as error:
            raise OptionError(
                f"the example inputs do not fit {type(model).__name__}.forward{self.signature}: "
                f"{error}",
                fix="pass example_inputs=(...) and example_kwargs={...} as the model is called",
            ) from error
        self.given = dict(bound.arguments)
        self._result: Any = None

    def run(self, model: nn.Module) -> Any:
        """The result of the call in eval mode; an error says that the example is wrong."""
        try:
            with self.repeatable(model), evaluating(model):
                return model(*self.args, **self.kwargs)
        except Exception as error:
            raise OptionError(
                f"{type(model).__name__} fails on the example inputs: "
                f"{type(error).__name__}: {error}",
                fix="pass inputs that the float model runs with",
            ) from error

    @contextlib.contextmanager
    def repeatable(self, model: nn.Module) -> Iterator[None]:
        """A run that another one can be compared with, without gradients.

        Random numbers start anew, and tensors that the model writes into (its buffers and the
        inputs) get their values back. A buffer that the model replaces by another tensor of its
        size is put back; one of another size is a table that was made for the sizes of the call.
        """
        held = [(m, n, b) for m in model.modules() for n, b in m._buffers.items() if b is not None]
        tensors = [*model.buffers(), *(tensor for _, tensor in leaves((self.args, self.kwargs)))]
        before = [(t, t._version, t.detach().clone()) for t in tensors if not t.is_inference()]
        random = torch.get_rng_state()
        torch.default_generator.manual_seed(0)
        try:
            with torch.no_grad():
                yield
        finally:
            torch.set_rng_state(random)
            for module, name, buffer in held:
                if is_replaced(buffer, module._buffers.get(name)):
                    module._buffers[name] = buffer
            with torch.no_grad():
                for tensor, version, values in before:
                    if tensor._version != version:
                        tensor.copy_(values)

    def result(self, model: nn.Module) -> Any:
        """The result of the first `run`, which is kept."""
        if self._result is None:
            self._result = self.run(model)
        return self._result

    def axes_by_name(self, asked: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
        """Axes of the tensors of the call, checked."""
        ranks = {".".join(path): tensor.dim() for path, tensor in leaves(self.given)}
        found = {}
        for name, axes in asked.items():
            if name not in ranks:
                raise OptionError(
                    f"dynamic_axes names '{name}', which is not an input",
                    fix=near_matches(name, ranks),
                )
            found[name] = tuple(axes)
            for axis in found[name]:
                if not -ranks[name] <= axis < ranks[name]:
                    raise OptionError(
                        f"dynamic_axes names axis {axis} of '{name}', which has {ranks[name]} axes",
                        fix=f"give axes from 0 to {ranks[name] - 1}",
                    )
        return found

    def with_two_rows(self, model: nn.Module) -> ExampleCall:
        """The call with every single row (a batch of one) twice, if the model takes that.

        Tracers that follow sizes take a size of 1 as fixed, since it may be broadcast.
        """
        if not any(_is_single(tensor) for _, tensor in leaves(self.given)):
            return self
        wider = copy.copy(self)
        for name in ("args", "kwargs", "given"):
            value = getattr(self, name)
            rows = (torch.cat([t, t]) if _is_single(t) else t for _, t in leaves(value))
            setattr(wider, name, rebuilt(value, rows))
        try:
            wider.run(model)
        except OptionError:
            return self
        return wider

    def concrete_args(self, *, numbers: bool = False, containers: bool = False) -> dict[str, Any]:
        """Arguments that the graph is made for.

        Args:
            numbers: also numbers, which then cannot change from call to call.
            containers: also the number and names of the tensors in lists and dicts.
        """
        fixed = (*FIXED, int, float) if numbers else FIXED
        found = {}
        for name, parameter in self.signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            value = self.given.get(name, parameter.default)
            if isinstance(value, fixed):
                found[name] = value
            elif containers and isinstance(value, list | tuple | dict):
                found[name] = _placeholders(value, fixed)
        return found

    @property
    def has_containers(self) -> bool:
        """Whether an argument is a list, tuple or dict."""
        return any(isinstance(v, list | tuple | dict) for v in self.given.values())


def _is_single(tensor: Tensor) -> bool:
    return tensor.dim() > 0 and tensor.shape[0] == 1


def _placeholders(value: Any, fixed: tuple[type, ...]) -> Any:
    """The structure of `value` with a placeholder for each tensor."""
    if isinstance(value, dict):
        return {key: _placeholders(item, fixed) for key, item in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_placeholders(item, fixed) for item in value)
    return value if isinstance(value, fixed) else fx.PH  # type: ignore[attr-defined]
