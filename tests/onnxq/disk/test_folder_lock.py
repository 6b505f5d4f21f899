from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from onnxq.disk import folder_lock
from onnxq.disk.folder_lock import try_lock
from onnxq.errors import SaveError


def test_one_at_a_time(tmp_path: Path) -> None:
    inside: list[str] = []

    def work() -> None:
        with folder_lock.folder_lock(tmp_path):
            inside.append("other")

    other = threading.Thread(target=work)
    with folder_lock.folder_lock(tmp_path) as held:
        assert held
        other.start()
        other.join(0.05)
        inside.append("first")
    other.join()
    assert inside == ["first", "other"]


def test_waiting_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "WAIT", 0.02)
    with (
        folder_lock.folder_lock(tmp_path),
        pytest.raises(SaveError, match="another process has been replacing files"),
        folder_lock.folder_lock(tmp_path),
    ):
        raise AssertionError("both have the lock")


def test_a_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    assert folder_lock.fcntl is not None
    monkeypatch.setattr(folder_lock.fcntl, "flock", refused)
    with folder_lock.folder_lock(tmp_path) as held:
        assert not held
    handle = os.open(tmp_path, os.O_RDONLY)
    assert try_lock(handle) is None
    os.close(handle)


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with folder_lock.folder_lock(tmp_path) as held:
        assert not held
