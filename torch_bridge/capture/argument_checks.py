"""Modules in a traced graph that check what tracing assumed about the arguments."""

from __future__ import annotations

from typing import Any

from torch import nn

from onnxq.errors import OptionError


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
    """The mode of the module that contains it, as a value: `self.training` of the source."""

    def forward(self) -> bool:
        """Whether the model is in training mode."""
        return self.training
