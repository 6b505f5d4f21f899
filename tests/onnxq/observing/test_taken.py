"""Classes of samples: what they have in common, and how they add up."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError
from onnxq.observing.taken import Taken


def taken(*cuts: tuple[int, int]) -> Taken:
    return Taken(frozenset(("data", *cut) for cut in cuts))


def samples(found: Taken) -> list[int]:
    return sorted(at for _, i, n in found.classes for at in range(i, 720, n))


@given(st.permutations([(i, 8) for i in range(8)]))
def test_all_shards_are_the_whole(cuts: list[tuple[int, int]]) -> None:
    assert reduce(Taken.joined, map(taken, cuts)) == taken((0, 1))


@given(st.integers(1, 6), st.data())
def test_what_is_joined_does_not_depend_on_the_order(number: int, data: st.DataObject) -> None:
    shards = [(i, number) for i in range(number)]
    some = data.draw(st.sets(st.sampled_from(shards), min_size=1))
    pieces = [(i + n * k, n * 2) for i, n in some for k in range(2)]
    mixed = data.draw(st.permutations(pieces))
    found = reduce(Taken.joined, map(taken, mixed))
    assert found == reduce(Taken.joined, map(taken, sorted(some)), Taken())
    assert samples(found) == sorted(at for i, n in some for at in range(i, 720, n))


@given(*(st.integers(1, 9).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))),) * 2)
def test_common_samples_are_an_error(one: tuple[int, int], two: tuple[int, int]) -> None:
    common = set(samples(taken(one))) & set(samples(taken(two)))
    if common:
        with pytest.raises(LoadError, match="merged already"):
            taken(one).joined(taken(two))
    else:
        assert samples(taken(one).joined(taken(two))) == sorted(
            samples(taken(one)) + samples(taken(two))
        )


def test_data_is_known_by_its_first_sample() -> None:
    one, two = (Taken.of({"x": np.full((4, 3), value)}, 0, 1) for value in (1.0, 2.0))
    assert len(one.joined(two).classes) == 2
    with pytest.raises(LoadError, match="all of the data"):
        one.joined(Taken.of({"x": np.ones((4, 3))}, 2, 3))
