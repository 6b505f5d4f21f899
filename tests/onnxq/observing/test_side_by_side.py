"""Samples among cores: how many at once, and in which order they come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from onnxq.observing.side_by_side import MOST_BYTES, Division, available_cores, in_order


@pytest.mark.parametrize(
    ("cores", "sample_bytes", "division"),
    [
        (1, 0, Division(1, 1)),
        (8, 0, Division(8, 1)),
        (8, MOST_BYTES // 8, Division(8, 1)),
        (8, MOST_BYTES // 3, Division(3, 2)),
        (8, MOST_BYTES // 2, Division(2, 4)),
        (8, 2 * MOST_BYTES, Division(1, 8)),
    ],
)
def test_all_cores_work_within_the_memory(
    cores: int, sample_bytes: int, division: Division
) -> None:
    assert Division.of(cores, sample_bytes) == division


def test_this_process_has_a_core() -> None:
    assert available_cores() >= 1


def test_results_come_in_order_and_few_are_in_the_works() -> None:
    """The first of each three takes longest; the third asked for waits for it."""
    begun: list[int] = []
    limit = 3

    def run(number: int) -> int:
        time.sleep(0.002 * (2 - number % 3))
        return number * number

    def samples() -> Iterator[int]:
        for number in range(12):
            begun.append(number)
            yield number

    with ThreadPoolExecutor(limit) as workers:
        found = []
        for number, square in in_order(run, samples(), workers, lambda: limit):
            found.append((number, square))
            assert len(begun) <= number + limit
    assert found == [(number, number * number) for number in range(12)]


def test_samples_run_at_the_same_time() -> None:
    """Two that wait for each other."""
    both = threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as workers:
        found = list(in_order(lambda _: both.wait() >= 0, range(4), workers, lambda: 2))
    assert found == [(number, True) for number in range(4)]


def test_a_sample_that_cannot_be_read_comes_after_those_before_it() -> None:
    def samples() -> Iterator[int]:
        yield from range(4)
        raise OSError("the disk is gone")

    with ThreadPoolExecutor(3) as workers:
        results = in_order(str, samples(), workers, lambda: 3)
        assert [next(results) for _ in range(4)] == [(n, str(n)) for n in range(4)]
        with pytest.raises(OSError, match="gone"):
            next(results)


@pytest.mark.parametrize(
    ("asked", "cores"),
    [("1", 1), ("1,2", 1), (" 1 ", 1), ("1000", None), ("0", None), ("many", None), ("", None)],
)
def test_a_limit_of_threads_is_kept(
    asked: str, cores: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    every = available_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert available_cores() == (cores or every)
