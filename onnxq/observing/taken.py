"""Which samples statistics are of, so that merging counts none twice.

A run takes the samples i, i + n, i + 2n ... of its data: the class i modulo n. Two classes i modulo
n and j modulo m have a sample in common if i = j modulo gcd(n, m). What is merged is written with
as few classes as possible, so all shards together are the whole data, 0 modulo 1, as one run is.

Data is known by the contents of its first sample, whatever files or arrays it comes in.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from onnxq.errors import LoadError
from onnxq.running.samples import Feed

Class = tuple[int, int]
"""Every n-th sample from number i on."""


@dataclass(frozen=True)
class Taken:
    """Classes of samples, by the name of their data."""

    classes: frozenset[tuple[str, int, int]] = frozenset()

    @classmethod
    def of(cls, first: Feed, index: int, of: int) -> Taken:
        """What a run takes of the data that begins with the sample `first`."""
        digest = hashlib.sha256()
        for name, value in sorted(first.items()):
            digest.update(f"{name} {value.dtype} {value.shape}\0".encode() + value.tobytes())
        return cls(frozenset({(digest.hexdigest()[:16], index, of)}))

    def joined(self, other: Taken) -> Taken:
        """Both together; an error if they have samples in common."""
        for (name, i, n), (twin, j, m) in itertools.product(self.classes, other.classes):
            if name == twin and (i - j) % math.gcd(n, m) == 0:
                raise LoadError(
                    f"its samples ({_shown(j, m)}) are merged already ({_shown(i, n)})",
                    fix="give each part once, and no part beside the whole",
                )
        by_data: dict[str, set[Class]] = defaultdict(set)
        for name, *cut in self.classes | other.classes:
            by_data[name].add((cut[0], cut[1]))
        return Taken(frozenset((n, *cut) for n, cuts in by_data.items() for cut in _fewest(cuts)))

    def to_json(self) -> list[list[str | int]]:
        """A list that is the same whatever the order of merging was."""
        return [list(each) for each in sorted(self.classes)]


def _fewest(cuts: set[Class]) -> Iterator[Class]:
    """The same samples in few classes, the same ones however they were divided before."""
    whole = math.lcm(*(n for _, n in cuts))
    left = {at for i, n in cuts for at in range(i, whole, n)}
    for n in (n for n in range(1, whole + 1) if whole % n == 0):
        for i in range(n if left else 0):
            some = range(i, whole, n)
            if left.issuperset(some):
                left.difference_update(some)
                yield i, n


def _shown(index: int, of: int) -> str:
    return "all of the data" if of == 1 else f"part {index + 1}/{of}"


__all__ = ["Taken"]
