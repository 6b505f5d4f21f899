"""Arrays are streamed from files, compressed or not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from onnxq.array_files import StoredStack, in_memory, open_npz
from onnxq.errors import LoadError


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("size", [1, 2, 3, None])
def test_pieces_join_to_the_whole(order: str, size: int | None, tmp_path: Path) -> None:
    array = np.asarray(np.arange(42.0).reshape(7, 2, 3), order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", a=array)
    np.savez_compressed(tmp_path / "c.npz", a=array)
    stacks = [
        in_memory(array),
        StoredStack(tmp_path / "a.npy"),
        open_npz(tmp_path / "b.npz")["a"],
        open_npz(tmp_path / "c.npz")["a"],
    ]
    for stack in stacks:
        assert stack.shape == (7, 2, 3)
        pieces = list(stack.pieces(size))
        assert [len(p) for p in pieces][:-1] == [size or 7] * (len(pieces) - 1)
        np.testing.assert_array_equal(np.concatenate(pieces), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_file_is_not_held_in_memory(save: object, tmp_path: Path) -> None:
    array = np.zeros((200, 50_000), np.float32)  # 40 MB
    save(tmp_path / "a.npz", x=array)  # type: ignore[operator]
    del array
    tracemalloc.start()
    count = sum(1 for _ in open_npz(tmp_path / "a.npz")["x"].pieces(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200
    assert peak < 3_000_000


def test_members_are_opened_only_when_asked_for(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(2), labels=np.array([{}], object))
    stacks = open_npz(tmp_path / "a.npz")
    assert stacks["x"].shape == (2,)
    with pytest.raises(LoadError, match=r"a\.npz.*Python objects"):
        _ = stacks["labels"].shape


def test_the_users_array_is_never_handed_out() -> None:
    array = np.zeros((2, 2), np.float32)
    for piece in in_memory(array).pieces(1):
        piece += 1
    assert not array.any()


def test_ragged_samples_are_refused() -> None:
    with pytest.raises(LoadError, match="not an array"):
        in_memory([[1], [1, 2]])
