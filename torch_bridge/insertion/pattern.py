"""A chain of float modules, and the quantized module that it becomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from onnxq.errors import OptionError
from torch_bridge.insertion.call_arguments import module_of_call
from torch_bridge.insertion.op_kinds import class_kind
from torch_bridge.nn.layer_forms import check_forms
from torch_bridge.nn.layout import channel_axis
from torch_bridge.nn.plain_type import plain_type


@dataclass(frozen=True)
class Link:
    """One place in a chain: a module that computes as one of `types`, or an equal function.

    A call of a function becomes a module of the first type, with the arguments of the call.
    """

    name: str
    types: tuple[type[nn.Module], ...]
    functions: tuple[Callable[..., Any], ...] = ()
    methods: tuple[str, ...] = ()
    made: Callable[..., nn.Module] | None = None
    """Makes that module from the arguments after the first, if the constructor takes others."""

    def __post_init__(self) -> None:
        self._check("types", _is_module_class, "classes of modules, (nn.Conv2d,)")
        self._check("functions", callable, "functions, (F.relu,)")
        self._check("methods", lambda each: isinstance(each, str), 'names of methods, ("relu",)')
        if not self.types:
            raise OptionError(
                f"link '{self.name}' has no types", fix="give a tuple of classes, (nn.Conv2d,)"
            )
        if not (self.made is None or callable(self.made)):
            raise OptionError(
                f"link '{self.name}': made={self.made!r} cannot be called",
                fix="give a function that takes the arguments of the call and returns a module",
            )

    def _check(self, field: str, fits: Callable[[Any], bool], wanted: str) -> None:
        """Refuse a field that is no tuple of what it must hold."""
        given = getattr(self, field)
        if not isinstance(given, tuple) or not all(map(fits, given)):
            raise OptionError(
                f"link '{self.name}': {field}={given!r}", fix=f"give a tuple of {wanted}"
            )

    def module(self, node: fx.Node, modules: dict[str, nn.Module]) -> nn.Module | None:
        """The module that `node` calls, or one equal to its function; None if it is neither."""
        if node.op == "call_module":
            module = modules.get(str(node.target))
            return module if module is not None and plain_type(module, self.types) else None
        called = node.op == "call_function" and node.target in self.functions
        called = called or (node.op == "call_method" and node.target in self.methods)
        if not called:
            return None
        try:
            return module_of_call(node, self.types[0], self.made)
        except Exception as error:  # a constructor, or the code of a user
            raise OptionError(
                f"link '{self.name}': the call '{node.name}' becomes no {self.types[0].__name__}: "
                f"{type(error).__name__}: {error}",
                fix="let made= return a module for the arguments of the call after the first",
            ) from error


def _is_module_class(each: Any) -> bool:
    return isinstance(each, type) and issubclass(each, nn.Module)


def no_objection(*modules: nn.Module) -> str:
    """Fuse every chain that matches."""
    return ""


@dataclass(frozen=True)
class Pattern:
    """A chain of modules, each the only consumer of the one before, and its quantized form."""

    name: str
    chain: tuple[Link, ...]
    qat: Any
    """Class with `from_float(module, weight, bias, input quantizer)`."""
    fused: Any = None
    """Class with `from_float(*modules of the chain)`; None for a chain of one."""
    axis: Callable[[nn.Module], int | None] = channel_axis
    """The weight's channel axis, None for one scale per tensor."""
    objection: Callable[..., str] = no_objection
    """Why these modules (of a chain that matches) cannot be fused; "" if they can."""
    backends: tuple[str, ...] = ()
    """The backends that it is for; none: all of them."""

    def __post_init__(self) -> None:
        links = isinstance(self.chain, tuple) and all(isinstance(c, Link) for c in self.chain)
        if not links:
            raise OptionError(
                f"pattern '{self.name}': chain={self.chain!r}",
                fix="give a tuple of Links: chain=(Link(...), Link(...))",
            )
        names = isinstance(self.backends, tuple) and all(isinstance(b, str) for b in self.backends)
        if not names:
            raise OptionError(
                f"pattern '{self.name}': backends={self.backends!r}",
                fix='give a tuple of names, ("tensorrt",)',
            )
        if not self.chain:
            raise OptionError(
                f"pattern '{self.name}' has an empty chain",
                fix="give the layer, and what may follow it: chain=(Link(...), Link(...))",
            )
        if (len(self.chain) > 1) != (self.fused is not None):
            raise OptionError(
                f"pattern '{self.name}': a chain of {len(self.chain)} "
                + ("has no fused form" if len(self.chain) == 1 else "needs a fused form"),
                fix="give `fused` for chains of two or more links, and only for them",
            )
        check_forms(self.name, self.chain[0].types, self.fused, self.qat)
        for layer in (*self.float_types, self.qat):
            if class_kind(layer) is None:
                raise OptionError(
                    f"pattern '{self.name}': {layer.__name__} has no op kind, by which a backend "
                    "decides what to quantize",
                    fix="derive it from the torch layer that it computes, or name its kind before: "
                    f"torch_bridge.register_op_kind({layer.__name__}, 'Conv')",
                )

    @property
    def float_types(self) -> tuple[type[nn.Module], ...]:
        """Classes of the modules that `qat` replaces."""
        return self.chain[0].types if self.fused is None else (self.fused,)

    def __str__(self) -> str:
        chain = ", ".join(link.name for link in self.chain)
        only = f" for {', '.join(self.backends)}" if self.backends else ""
        return f"{chain}: trained as {self.qat.__name__}{only}"
