"""A call of a model with all its tensors in one flat list, in and out.

Exporters disagree on keyword-only arguments, nested dicts and the order of outputs. `FlatCall`
takes a call apart once: tensors become numbered inputs with names taken from the signature
('x', 'boxes.0', 'batch.mask'), anything else (None, numbers, strings) stays a constant of the
call, and results are listed in the order in which they are written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import UnsupportedModelError


class FlatCall(nn.Module):
    """`model(*args, **kwargs)` as a function of tensors alone.

    Attributes:
        names: one name per input tensor.
        tensors: the input tensors of the call.
    """

    def __init__(
        self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None
    ) -> None:
        super().__init__()
        self.model = model
        self._call: dict[str, Any] = {"args": tuple(args), "kwargs": dict(kwargs or {})}
        found = list(leaves(self._call))
        self.tensors = tuple(tensor for _, tensor in found)
        self.names = unique(_argument_names(model, [path for path, _ in found]))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The tensors that the model returns, in the order of `leaves`."""
        call = rebuilt(self._call, iter(tensors))
        result = self.model(*call["args"], **call["kwargs"])
        return tuple(tensor for _, tensor in leaves(result))

    @torch.no_grad()
    def outputs(self) -> dict[str, Tensor]:
        """The results of the call, by the names that their structure gives."""
        found = list(leaves(self.model(*self._call["args"], **self._call["kwargs"])))
        if not found:
            raise UnsupportedModelError(
                "the model returns no tensor", fix="return the tensors that are to be computed"
            )
        names = unique([".".join(path) or "output" for path, _ in found], self.names)
        return dict(zip(names, (tensor for _, tensor in found), strict=True))


def is_tensor(value: Any) -> bool:
    """Whether `value` is a tensor."""
    return isinstance(value, Tensor)


def is_structure(value: Any) -> bool:
    """Whether `value` is a tuple, a list, a dict or a dataclass."""
    is_record = hasattr(value, "__dataclass_fields__") and not isinstance(value, type)
    return is_record or isinstance(value, (Mapping, tuple, list))


def leaves(
    value: Any, path: tuple[str, ...] = (), is_leaf: Callable[[Any], bool] = is_tensor
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every tensor in nested tuples, lists, dicts and dataclasses, with its path."""
    if is_leaf(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, (*path, str(key)), is_leaf)
    elif isinstance(value, (tuple, list)):
        keys = getattr(value, "_fields", None) or range(len(value))
        if not path and keys == range(len(value)):
            keys = [f"output_{i}" for i in keys]
        for key, item in zip(keys, value, strict=True):
            yield from leaves(item, (*path, str(key)), is_leaf)
    elif is_structure(value):
        for key in value.__dataclass_fields__:
            yield from leaves(getattr(value, key), (*path, key), is_leaf)


def rebuilt(value: Any, tensors: Iterator[Any], is_leaf: Callable[[Any], bool] = is_tensor) -> Any:
    """A copy of the structure with other values in place of its tensors, in that order."""
    if is_leaf(value):
        return next(tensors)
    if isinstance(value, Mapping):
        items = {key: rebuilt(item, tensors, is_leaf) for key, item in value.items()}
        return items if type(value) is dict else type(value)(items)  # type: ignore[call-arg]
    if isinstance(value, (tuple, list)):
        parts = [rebuilt(item, tensors, is_leaf) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if is_structure(value):
        names = value.__dataclass_fields__
        fields = {name: rebuilt(getattr(value, name), tensors, is_leaf) for name in names}
        return type(value)(**fields)
    return value


def _argument_names(model: nn.Module, paths: list[tuple[str, ...]]) -> list[str]:
    """'args'/i/... and 'kwargs'/name/... in the words of the signature of `forward`."""
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p.name for p in parameters if p.kind in kinds]
    names = []
    for source, first, *rest in paths:
        if source == "args":
            index = int(first)
            first = positional[index] if index < len(positional) else f"input_{index}"
        names.append(".".join((first, *rest)))
    return names


def unique(names: Sequence[str], taken: Sequence[str] = ()) -> tuple[str, ...]:
    """`names`, with a number after each that is taken already."""
    seen = set(taken)
    result = []
    for name in names:
        fresh, number = name, 0
        while fresh in seen:
            number += 1
            fresh = f"{name}_{number}"
        seen.add(fresh)
        result.append(fresh)
    return tuple(result)
