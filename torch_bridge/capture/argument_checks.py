"""Modules in a traced graph that check what tracing assumed about the arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.errors import OptionError
from torch_bridge.capture.flat_call import leaves, rebuilt


class Specialised(nn.Module):
    """Refuse another value of an argument than the one the graph was traced with."""

    def __init__(self, argument: str, value: Any) -> None:
        super().__init__()
        self.argument = argument
        self.value = value

    def forward(self, given: Any) -> None:
        """Check the argument."""
        if type(given) is not type(self.value) or given != self.value:
            raise OptionError(
                f"the model was prepared with {self.argument}={self.value!r}, and that choice is "
                f"part of its graph; got {given if not hasattr(given, 'shape') else 'a tensor'}",
                fix="prepare with example inputs of the call you make, or name the module that "
                "branches on it in leaf_modules",
            )


class Required(nn.Module):
    """Refuse a call without a keyword-only argument that has no default."""

    def __init__(self, argument: str) -> None:
        super().__init__()
        self.argument = argument

    def forward(self, given: Any) -> Any:
        """The argument."""
        if given is None:
            raise TypeError(f"missing required keyword argument '{self.argument}'")
        return given


class TrainingFlag(nn.Module):
    """A value that follows the mode of the module that contains it.

    It is `self.training` itself, or a number chosen by it: `p if self.training else 0.0`.
    """

    def __init__(self, train: bool | float = True, evaluation: bool | float = False) -> None:
        super().__init__()
        self.train_value = train
        self.evaluation_value = evaluation

    def forward(self) -> bool | float:
        """The value in the present mode."""
        return self.train_value if self.training else self.evaluation_value


class Parts(nn.Module):
    """The tensors in an argument that is a list, a dict or an object, in a fixed order."""

    def __init__(self, argument: str, example: Any) -> None:
        super().__init__()
        self.argument = argument
        self.paths = [path for path, _ in leaves(example)]
        self.fixed = rebuilt(example, itertools.repeat(None))

    def forward(self, given: Any) -> tuple[Tensor, ...]:
        """The tensors of the argument."""
        found = list(leaves(given))
        if [path for path, _ in found] != self.paths:
            got = ", ".join(".".join(path) for path, _ in found) or "none"
            raise OptionError(
                f"the model was prepared with the tensors {', '.join(map('.'.join, self.paths))} "
                f"in {self.argument}, and got {got}",
                fix="prepare with example inputs of the call you make",
            )
        if rebuilt(given, itertools.repeat(None)) != self.fixed:
            raise OptionError(
                f"{self.argument} differs from the example in more than its tensors, and its other "
                "values are part of the graph",
                fix="prepare with example inputs of the call you make",
            )
        return tuple(tensor for _, tensor in found)


class Assembled(nn.Module):
    """The result of a model, as the object that it returns."""

    def __init__(self, template: Any) -> None:
        super().__init__()
        self.template = template

    def forward(self, *parts: Any) -> Any:
        """An object like the template with these parts instead of its tensors."""
        return rebuilt(self.template, iter(parts))


class Sizes(nn.Module):
    """Refuse inputs of sizes for which the code of the model would have taken another way.

    torch.export notes every decision that code makes on a size: `x.shape[1] == 3`.
    """

    def __init__(self, names: Sequence[str], conditions: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.conditions = tuple(conditions)

    def forward(self, *tensors: Tensor) -> None:
        """Check the sizes."""
        if torch.onnx.is_in_onnx_export() or torch.compiler.is_compiling():
            return  # sizes are no numbers there
        given = dict(zip(self.names, tensors, strict=True))
        for condition in self.conditions:
            if not _holds(condition, given):
                shapes = ", ".join(f"{n}: {tuple(t.shape)}" for n, t in given.items())
                raise OptionError(
                    f"the model was captured for inputs with {condition}; got {shapes}",
                    fix="prepare with example inputs of this size, or name the axis in "
                    "dynamic_axes={input: [axis]}",
                )


def _holds(condition: str, given: dict[str, Tensor]) -> bool:
    return bool(eval(condition, {"__builtins__": _ALLOWED}, dict(given)))


_ALLOWED = {"max": max, "min": min, "abs": abs, "int": int, "math": math}
"""Names that conditions on sizes use."""
