"""Which models of a comparison can be given the same inputs.

Inputs are the same if names and types are equal and no dimension has two sizes. A dimension that
one model leaves open takes the size that another fixes, so a model of any image size is compared
with one of 224 × 224 on that size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxq.running.ort_tensors import TensorSpec

Dim = int | str | None


@dataclass
class Group:
    """Models with the same inputs."""

    inputs: tuple[TensorSpec, ...]
    """The inputs, with every dimension that one of the models fixes."""
    members: list[int]
    """Positions of the models."""


def group(models: Iterable[tuple[int, Sequence[TensorSpec]]]) -> list[Group]:
    """The groups of the models, each with its position, in the order of their first members."""
    found: list[Group] = []
    for position, inputs in models:
        for candidate in found:
            merged = _merged(candidate.inputs, inputs)
            if merged is not None:
                candidate.inputs = merged
                candidate.members.append(position)
                break
        else:
            found.append(Group(tuple(inputs), [position]))
    return found


def _merged(
    mine: Sequence[TensorSpec], others: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...] | None:
    """Inputs that fit both, in the order of `mine`; None if there are none."""
    theirs = {spec.name: spec for spec in others}
    if theirs.keys() != {spec.name for spec in mine}:
        return None
    merged = []
    for spec in mine:
        other = theirs[spec.name]
        shape = _merged_shape(spec.shape, other.shape)
        if spec.type != other.type or shape is None:
            return None
        merged.append(dataclasses.replace(spec, shape=shape))
    return tuple(merged)


def _merged_shape(mine: tuple[Dim, ...], other: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    if len(mine) != len(other):
        return None
    merged: list[Dim] = []
    for a, b in zip(mine, other, strict=True):
        sizes = {d for d in (a, b) if isinstance(d, int) and d >= 0}
        if len(sizes) > 1:
            return None
        merged.append(sizes.pop() if sizes else a)
    return tuple(merged)
