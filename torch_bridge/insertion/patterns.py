"""Chains of float modules that are fused, and the quantized module that each becomes.

`PATTERNS` is the one table. A new layer or chain is one `Pattern`:

    PATTERNS.add(Pattern(
        "MyConv+MyNorm",
        chain=(Link("MyConv", (MyConv,)), Link("MyNorm", (MyNorm,))),
        fused=MyFusedConv,          # .from_float(my_conv, my_norm): the float form
        qat=MyQatConv,              # .from_float(fused, weight, bias, input quantizer)
    ))

Its classes derive from the torch layers they compute, or have an entry in `op_kinds.MODULES`: a
backend quantizes by kinds.

A chain of one link has no fused form: it is a layer that is only quantized. `backend=` adds or
removes a pattern for one backend, in place of the common pattern of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from onnxq.errors import OptionError, near_matches
from torch_bridge import nn as qnn
from torch_bridge.insertion.op_kinds import class_kind
from torch_bridge.nn.bn_fold import is_batch_norm, why_not_foldable
from torch_bridge.nn.frozen_batch_norm import FROZEN
from torch_bridge.nn.layout import channel_axis
from torch_bridge.nn.plain_type import plain_type


@dataclass(frozen=True)
class Link:
    """One place in a chain: a module that computes as one of `types`, or an equal function."""

    name: str
    types: tuple[type[nn.Module], ...]
    functions: tuple[Callable[..., Any], ...] = ()
    methods: tuple[str, ...] = ()

    def module(self, node: fx.Node, modules: dict[str, nn.Module]) -> nn.Module | None:
        """The module that `node` calls, or one equal to its function; None if it is neither."""
        if node.op == "call_module":
            module = modules.get(str(node.target))
            return module if module is not None and plain_type(module, self.types) else None
        called = node.op == "call_function" and node.target in self.functions
        called = called or (node.op == "call_method" and node.target in self.methods)
        return self.types[0]() if called else None


def no_objection(*modules: nn.Module) -> str:
    """Fuse every chain that matches."""
    return ""


def norm_objection(layer: nn.Module, *others: nn.Module) -> str:
    """Why the batch norm of a chain cannot be folded into its layer; "" if it can."""
    reasons = (why_not_foldable(layer, m) for m in others if is_batch_norm(m))
    return next((reason for reason in reasons if reason), "")


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

    def __post_init__(self) -> None:
        if not self.chain or (len(self.chain) > 1) != (self.fused is not None):
            raise OptionError(
                f"pattern '{self.name}': a chain of {len(self.chain)} "
                + ("has no fused form" if len(self.chain) == 1 else "needs a fused form"),
                fix="give `fused` for chains of two or more links, and only for them",
            )
        for layer in (*self.float_types, self.qat):
            if class_kind(layer) is None:
                raise OptionError(
                    f"pattern '{self.name}': {layer.__name__} has no op kind, by which a backend "
                    "decides what to quantize",
                    fix="derive it from the torch layer that it computes, or name its kind before: "
                    f"torch_bridge.insertion.op_kinds.MODULES[{layer.__name__}] = 'Conv'",
                )

    @property
    def float_types(self) -> tuple[type[nn.Module], ...]:
        """Classes of the modules that `qat` replaces."""
        return self.chain[0].types if self.fused is None else (self.fused,)


class PatternTable:
    """Patterns by name, common ones and those of single backends."""

    def __init__(self) -> None:
        self._common: dict[str, Pattern] = {}
        self._of_backend: dict[str, dict[str, Pattern | None]] = {}

    def add(self, pattern: Pattern, *, backend: str | None = None, replace: bool = False) -> None:
        """Add a pattern for all backends, or for one (then it may replace a common one)."""
        if backend is not None:
            self._of_backend.setdefault(backend, {})[pattern.name] = pattern
        elif pattern.name in self._common and not replace:
            raise OptionError(
                f"a pattern '{pattern.name}' exists already",
                fix="choose another name, or pass replace=True",
            )
        else:
            self._common[pattern.name] = pattern

    def remove(self, name: str, *, backend: str | None = None) -> None:
        """Take a pattern away from all backends, or from one."""
        known = {**self._common, **self._of_backend.get(backend or "", {})}
        if name not in known:
            raise OptionError(f"no pattern '{name}'", fix=near_matches(name, known))
        if backend is None:
            del self._common[name]
        elif name in self._common:
            self._of_backend.setdefault(backend, {})[name] = None
        else:
            del self._of_backend[backend][name]

    def of(self, backend: str | None = None) -> tuple[Pattern, ...]:
        """The patterns that hold for `backend`: longest chain first, then the latest added."""
        merged = {**self._common, **self._of_backend.get(backend or "", {})}
        found = [pattern for pattern in merged.values() if pattern is not None]
        return tuple(sorted(reversed(found), key=lambda p: -len(p.chain)))


RELU = Link("ReLU", (nn.ReLU,), (F.relu, F.relu_, torch.relu, torch.relu_), ("relu", "relu_"))
RELU6 = Link("ReLU6", (nn.ReLU6,), (F.relu6,))
BATCH_NORM = {
    rank: Link("BatchNorm", (norm, nn.SyncBatchNorm, FROZEN[norm], qnn.FrozenSyncBatchNorm))
    for rank, norm in enumerate((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), start=1)
}
_RANKS = {
    **{f"Conv{rank}d": rank for rank in (1, 2, 3)},
    **{f"ConvTranspose{rank}d": rank for rank in (1, 2, 3)},
    "Linear": 1,
}
"""Layers by name, and the rank of the batch norm that follows them."""


def _builtin() -> PatternTable:
    table = PatternTable()
    embedding = Link("Embedding", (nn.Embedding,))
    table.add(Pattern(embedding.name, (embedding,), qat=qnn.QatEmbedding))
    for kind, rank in _RANKS.items():
        layer = Link(kind, (getattr(nn, kind),))
        table.add(Pattern(kind, (layer,), qat=getattr(qnn, f"Qat{kind}")))
        forms = {"fused": getattr(qnn, f"Fused{kind}"), "qat": getattr(qnn, f"FusedQat{kind}")}
        norm = BATCH_NORM[rank]
        for rest in ((norm,), (RELU,), (RELU6,), (norm, RELU), (norm, RELU6)):
            chain = (layer, *rest)
            name = "+".join(link.name for link in chain)
            table.add(Pattern(name, chain, **forms, objection=norm_objection))
    return table


PATTERNS = _builtin()
"""The table that `fusion.fuse` and `fusion.swap` read."""
