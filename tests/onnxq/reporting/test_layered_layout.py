"""Positions of nodes: below what they read, apart from each other, in a picture that fits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.reporting.layered_layout import HEIGHT, WIDTH, Edge, layout

graphs = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(-2, n + 2), st.integers(-2, n + 2)), max_size=60)
    )
)


def overlap(places: list[tuple[float, float]]) -> bool:
    return any(
        abs(a[0] - b[0]) < WIDTH and abs(a[1] - b[1]) < HEIGHT
        for a, b in itertools.combinations(places, 2)
    )


@settings(max_examples=60, deadline=None)
@given(graphs)
def test_no_two_nodes_overlap(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph
    places = layout(count, edges)
    assert len(places) == count
    assert not overlap(places)
    if count < 20:  # one column
        for a, b in edges:
            if 0 <= a < b < count:
                assert places[a][1] < places[b][1]


def test_a_diamond_is_symmetric() -> None:
    top, left, right, bottom = layout(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert top[0] == pytest.approx(bottom[0])
    assert left[1] == right[1]
    assert top[0] - left[0] == pytest.approx(right[0] - top[0])


def test_a_constant_stands_above_its_only_consumer() -> None:
    chain = [(0, 1), (1, 2), (2, 4), (3, 4)]
    places = layout(5, chain)
    assert places[3][1] == places[2][1]


def test_a_long_chain_is_folded_into_columns() -> None:
    places = layout(2000, [(n, n + 1) for n in range(1999)])
    width = max(x for x, _ in places) + WIDTH
    height = max(y for _, y in places) + HEIGHT
    assert 0.8 < width / height < 2.5
    assert not overlap(places)


def test_long_skips_cost_nothing() -> None:
    """Each layer reads the last 24: libraries that draw edges through every row give up here."""
    edges = [(m, n) for n in range(1, 2000) for m in range(max(0, n - 24), n)]
    assert not overlap(layout(2000, edges)[:300])


def test_an_empty_network() -> None:
    assert layout(0, []) == []
