"""The collector rests while a graph is built, and only then."""

from __future__ import annotations

import gc

import pytest

from onnxq.gc_pause import gc_paused


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
