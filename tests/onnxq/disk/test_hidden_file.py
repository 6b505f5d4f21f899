"""Hidden files are locked while they are open, and moved in one step, with mode and owner."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from onnxq.disk.hidden_file import create, put, second_name, take_mode
from onnxq.disk.journal import OURS

TOKEN = "0" * 16


def test_names_are_ours_and_never_taken(tmp_path: Path) -> None:
    first, file = create(tmp_path, TOKEN)
    second, other = create(tmp_path, TOKEN)
    assert first != second
    assert all(OURS.fullmatch(path.name) for path in (first, second))
    file.close()
    other.close()


def test_a_move_to_another_file_system_keeps_time_mode_and_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, link, target = tmp_path / "source", tmp_path / "link", tmp_path / "far" / "target"
    source.write_text("new")
    source.chmod(0o640)
    before = source.stat()
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    true = os.replace

    def replace(one: Path, other: Path) -> None:
        if one.parent != other.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        true(one, other)

    monkeypatch.setattr(os, "replace", replace)
    put(source, link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    after = target.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert not source.exists()
    assert [p.name for p in target.parent.iterdir()] == ["target"]


def test_a_second_name_or_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("1")
    second_name(path, tmp_path / "b")
    assert (tmp_path / "b").samefile(path)

    def refused(*arguments: object) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(os, "link", refused)
    second_name(path, tmp_path / "c")
    assert not (tmp_path / "c").samefile(path)
    assert (tmp_path / "c").read_text() == "1"


@pytest.mark.parametrize(("mode", "without"), [(0o660, 0o600), (0o644, 0o644), (0o664, 0o644)])
def test_what_was_for_one_group_is_not_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, without: int
) -> None:
    path = tmp_path / "a"
    path.touch()
    path.chmod(mode)
    like = list(path.stat())
    like[5] += 1  # st_gid

    def refused(*arguments: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with (tmp_path / "b").open("wb") as file:
        monkeypatch.setattr(os, "fchown", refused)
        take_mode(file.fileno(), os.stat_result(like))
        take_mode(file.fileno(), path.stat())
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
        take_mode(file.fileno(), os.stat_result(like))
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == without


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owner_and_group_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    os.chown(path, 12345, 23456)
    with (tmp_path / "b").open("wb") as file:
        take_mode(file.fileno(), path.stat())
        found = os.fstat(file.fileno())
    assert (found.st_uid, found.st_gid) == (12345, 23456)
