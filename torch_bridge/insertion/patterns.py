"""Chains of float modules that are fused, and the quantized module that each becomes.

`PATTERNS` is the one table. A new layer or chain is one `Pattern`:

    register_pattern(Pattern(
        "MyConv+MyNorm",
        chain=(Link("MyConv", (MyConv,)), Link("MyNorm", (MyNorm,))),
        fused=MyFusedConv,          # .from_float(my_conv, my_norm): the float form
        qat=MyQatConv,              # .from_float(fused, weight, bias, input quantizer)
    ))

Its classes derive from the torch layers they compute, or are given a kind by `register_op_kind`: a
backend quantizes by kinds. Other packages add patterns by the entry points `onnxq.patterns`, and
`prepare(..., patterns=[...])` takes them for one model.

A chain of one link has no fused form: it is a layer that is only quantized. A pattern of one
backend takes the place of the common pattern of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional as F

from onnxq.backend import Backend, backends
from onnxq.discovery import PATTERNS_GROUP
from onnxq.errors import OptionError
from onnxq.near_words import closest
from torch_bridge import nn as qnn
from torch_bridge.insertion.pattern import Link, Pattern
from torch_bridge.insertion.pattern_table import PatternTable
from torch_bridge.nn.bn_fold import is_batch_norm, why_not_foldable
from torch_bridge.nn.frozen_batch_norm import FROZEN
from torch_bridge.registry import BUILT_IN


def norm_objection(layer: nn.Module, *others: nn.Module) -> str:
    """Why the batch norm of a chain cannot be folded into its layer; "" if it can."""
    reasons = (why_not_foldable(layer, m) for m in others if is_batch_norm(m))
    return next((reason for reason in reasons if reason), "")


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
    known = PatternTable(PATTERNS_GROUP)

    def add(pattern: Pattern) -> None:
        known.add(pattern, provider=BUILT_IN)

    embedding = Link("Embedding", (nn.Embedding,))
    add(Pattern(embedding.name, (embedding,), qat=qnn.QatEmbedding))
    for kind, rank in _RANKS.items():
        layer = Link(kind, (getattr(nn, kind),))
        add(Pattern(kind, (layer,), qat=getattr(qnn, f"Qat{kind}")))
        forms = {"fused": getattr(qnn, f"Fused{kind}"), "qat": getattr(qnn, f"FusedQat{kind}")}
        norm = BATCH_NORM[rank]
        for rest in ((norm,), (RELU,), (RELU6,), (norm, RELU), (norm, RELU6)):
            chain = (layer, *rest)
            name = "+".join(link.name for link in chain)
            add(Pattern(name, chain, **forms, objection=norm_objection))
    return known


PATTERNS = _builtin()
"""The table that `fusion.fuse` and `fusion.swap` read."""


def register_pattern(
    pattern: Pattern, *, backend: str | None = None, replace: bool = False
) -> Pattern:
    """Fuse and quantize by this pattern, for its backends or for one."""
    _check(pattern)
    PATTERNS.add(pattern, backend=backend, replace=replace)
    return pattern


def own_patterns(given: Iterable[Pattern | str]) -> dict[str, Pattern]:
    """The patterns that a user gave for one model by their names; names mean registered ones."""
    if isinstance(given, Pattern | str):
        given = (given,)
    every = [PATTERNS.named(each) if isinstance(each, str) else each for each in given]
    for pattern in every:
        _check(pattern)
    found = {pattern.name: pattern for pattern in every}
    if len(found) < len(every):
        raise OptionError("patterns: two have the same name", fix="give each a name of its own")
    return found


def unmatched(
    given: Iterable[Pattern], model: nn.Module, prepared: nn.Module, backend: Backend
) -> list[str]:
    """A sentence for each pattern that a user gave and that made no layer of `prepared`."""
    made = {getattr(module, "fused_pattern", "") for module in prepared.modules()}
    return [
        f"the pattern '{pattern.name}', given by patterns=, matched nothing: "
        + _why_unmatched(pattern, model, backend)
        for pattern in given
        if pattern.name not in made
    ]


def replacing(given: Iterable[Pattern], backend: Backend) -> list[str]:
    """A sentence for each pattern that a user gave and that is used in place of a known one."""
    known = {pattern.name: pattern for pattern in PATTERNS.of(backend.name)}
    return [
        f"the pattern '{new.name}', given by patterns=, takes the place of the one with the same "
        f"name ({known[new.name]}): to have both, give it another name"
        for new in given
        if known.get(new.name, new) != new
    ]


def _meant(names: Iterable[str]) -> str:
    """What misspelt names of backends may mean."""
    near = [
        each
        for name in names
        if name not in backends()
        for each in closest(name, tuple(backends()))
    ]
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _why_unmatched(pattern: Pattern, model: nn.Module, backend: Backend) -> str:
    if pattern.backends and backend.name not in pattern.backends:
        return f"it is for {', '.join(pattern.backends)} only" + _meant(pattern.backends)
    if len(pattern.chain) > 1 and not backend.placement.fuse:
        return f"{backend.name} trains layers unfused"
    for link in pattern.chain:
        held = any(isinstance(module, link.types) for module in model.modules())
        if not (held or link.functions or link.methods):
            kinds = " or ".join(kind.__name__ for kind in link.types)
            return f"the model holds no {kinds}, and the link '{link.name}' names no functions"
    if len(pattern.chain) > 1:
        links = ", ".join(link.name for link in pattern.chain)
        return f"no {links} in a row, with one reader each and arguments that the links take"
    return f"no {pattern.chain[0].name} is quantized"


def _check(pattern: object) -> None:
    if not isinstance(pattern, Pattern):
        raise OptionError(
            f"{pattern!r} is not a pattern", fix="give a torch_bridge.Pattern(name, chain, qat=...)"
        )
