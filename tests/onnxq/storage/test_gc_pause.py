"""The collector rests while a graph is built, and only then."""

from __future__ import annotations

import gc
import weakref

import pytest

from onnxq.storage import gc_pause
from onnxq.storage.gc_pause import gc_paused


def test_paused_inside_and_running_again_after() -> None:
    assert gc.isenabled()
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_running_again_after_an_error() -> None:
    with pytest.raises(ValueError, match="boom"), gc_paused():
        raise ValueError("boom")
    assert gc.isenabled()


def test_left_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with gc_paused(), gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_as_a_decorator() -> None:
    @gc_paused()
    def enabled() -> bool:
        return gc.isenabled()

    assert [enabled(), enabled()] == [False, False]
    assert gc.isenabled()


class _Knot:
    def __init__(self) -> None:
        self.me = self


def test_what_is_made_inside_is_old_at_once() -> None:
    gc.collect()
    with gc_paused():
        kept = [_Knot() for _ in range(100)]
    young = {id(o) for g in (0, 1) for o in gc.get_objects(g)}
    assert not any(id(k) in young for k in kept)


def test_garbage_of_many_pauses_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_pause, "MOST_OBJECTS", 5_000)
    monkeypatch.setattr(gc_pause._Made, "left", 0)
    gc.collect()
    lost = []
    for _ in range(10):
        with gc_paused():
            lost.append([weakref.ref(_Knot()) for _ in range(1_000)])
    assert all(ref() is None for refs in lost[:2] for ref in refs)


def test_a_collection_waits_until_as_much_is_made_as_is_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc_pause, "MOST_OBJECTS", 1_000)
    monkeypatch.setattr(gc_pause._Made, "left", 0)
    full: list[str] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            full.append(phase)

    gc.collect()
    alive = [_Knot() for _ in range(20_000)]
    gc.callbacks.append(count)
    try:
        for _ in range(8):
            with gc_paused():
                alive += [_Knot() for _ in range(1_000)]
    finally:
        gc.callbacks.remove(count)
    assert full == ["start", "stop"]


def test_what_others_have_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with gc_paused():
            pass
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
