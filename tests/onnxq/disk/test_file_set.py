"""Files that belong together are replaced together, whatever happens in between."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from onnxq.disk import file_set
from onnxq.disk.file_set import FileSet, check_folder
from onnxq.disk.recovery import recover
from onnxq.errors import SaveError
from tests.hostile.dying_saves import NEW, OLD, make_old
from tests.models.stored_models import listing


def write(folder: Path, /, **contents: str) -> None:
    with FileSet(folder) as files:
        for name, content in contents.items():
            files.stage(name).write(content.encode())


def visible(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in listing(folder).items() if not name.startswith(".")}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- killed -----------------------------------------------------------------------------------


def test_killed_at_any_step_the_folder_holds_a_set_or_is_completed(tmp_path: Path) -> None:
    """Also where the recovery is killed in turn, and where the moves were being taken back."""
    root = tmp_path / "deaths"
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.dying_saves", str(root)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    folders = sorted(root.iterdir())
    mixtures = finished = 0
    for folder in folders:
        found = visible(folder)
        assert all(found[name] in (OLD.get(name), NEW[name]) for name in found), folder
        mixed = found not in (OLD, NEW)
        notes = recover(folder)
        assert listing(folder) in (OLD, NEW), folder  # nor is any hidden file left
        assert mode(folder / "a.onnx") == 0o600
        assert mode(folder / "b.json") == 0o644 & ~_umask()
        if mixed:
            completed = [name for name in NEW if found.get(name) != NEW[name]]
            assert any(name in note for note in notes for name in completed), (folder, notes)
            assert listing(folder) == NEW
        assert recover(folder) == []
        mixtures += mixed
        finished += listing(folder) == NEW
    assert mixtures > 10
    assert 0 < finished < len(folders)


def _umask() -> int:
    probe = os.umask(0)
    os.umask(probe)
    return probe


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 7])
def test_interrupted_at_any_move_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Control-C just before or just behind a rename: behind it nobody has taken note of it yet."""
    folder = tmp_path / "set"
    make_old(folder)
    true, calls = os.replace, iter(range(100))

    def replace(source: str, target: str) -> None:
        number = next(calls)
        if number == at // 2 and at % 2:
            raise KeyboardInterrupt
        true(source, target)
        if number == at // 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write(folder, **{"a.onnx": "1", "b.json": "2", "c.bin": "3"})
    assert listing(folder) == OLD


def test_what_can_be_neither_moved_nor_put_back_is_completed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_old(tmp_path / "set")
    true, calls = os.replace, iter(range(100))

    def replace(source: str, target: str) -> None:
        if next(calls) > 1:
            raise OSError(5, "Input/output error")
        true(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(SaveError, match=r"a\.onnx, b\.json, c\.bin could be neither") as caught:
        write(tmp_path / "set", **{name: data.decode() for name, data in NEW.items()})
    assert "next onnxq command" in caught.value.fix
    monkeypatch.undo()
    (note,) = recover(tmp_path / "set")
    assert "completed now: b.json, c.bin" in note
    assert listing(tmp_path / "set") == NEW


# -- several at once --------------------------------------------------------------------------


def test_sets_that_are_written_at_once_are_never_mixed(tmp_path: Path) -> None:
    """Threads here; processes differ in nothing that a lock could see."""
    names = [f"{n}.bin" for n in range(4)]
    errors: list[Exception] = []

    def work(content: str) -> None:
        try:
            for _ in range(15):
                with FileSet(tmp_path, durable=False) as files:
                    for name in names:
                        files.stage(name).write(content.encode())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(c * 50,)) for c in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(listing(tmp_path)) == names
    assert len(set(listing(tmp_path).values())) == 1


def test_a_set_in_the_making_survives_others(tmp_path: Path) -> None:
    with FileSet(tmp_path) as files:
        slow = files.stage("a")
        slow.write(b"1")
        write(tmp_path, b="2", c="3")
        assert recover(tmp_path) == []
        slow.write(b"4")
    assert listing(tmp_path) == {"a": b"14", "b": b"2", "c": b"3"}


def test_one_name_is_not_written_twice(tmp_path: Path) -> None:
    with FileSet(tmp_path) as files:
        files.stage("a").write(b"1")
        with pytest.raises(SaveError, match="a would be written twice"):
            files.stage("a")
    assert listing(tmp_path) == {"a": b"1"}


def test_a_dropped_file_is_no_part_of_the_set(tmp_path: Path) -> None:
    with FileSet(tmp_path) as files:
        files.stage("a").write(b"1")
        file = files.stage("b")
        files.drop(file)
    assert listing(tmp_path) == {"a": b"1"}


# -- modes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o664, 0o444])
def test_modes_of_replaced_files_are_kept(tmp_path: Path, kept: int) -> None:
    make_old(tmp_path / "set")
    for name in OLD:
        (tmp_path / "set" / name).chmod(kept)
    write(tmp_path / "set", **{"a.onnx": "1", "b.json": "2"})
    assert [mode(tmp_path / "set" / name) for name in OLD] == [kept, kept]


def test_new_files_have_the_mode_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path, a="1", b="2")
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in "ab"] == [0o640, 0o640]


def test_what_is_being_written_over_a_private_file_is_private(tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o600)
    with FileSet(tmp_path) as files:
        files.stage("a").write(b"secret")
        (hidden,) = tmp_path.glob(".onnxq-*")
        assert mode(hidden) == 0o600


# -- targets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x" * 300, "nul\0", "loop", "loop/x", "file/x"])
def test_paths_that_cannot_be(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    with pytest.raises(SaveError, match=r"cannot write|is a file"):
        check_folder(tmp_path / name)
    path = tmp_path / name
    with pytest.raises(SaveError, match=r"cannot write|is a file"):
        write(path.parent, **{path.name: "1"})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "loop"]


def test_folders_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SaveError, match="is a folder"):
        write(tmp_path, folder="1")
    with pytest.raises(SaveError, match="is not a regular file"):
        write(tmp_path, pipe="1")
    with pytest.raises(SaveError, match="is not a regular file"):
        write(Path("/dev"), full="1")


def test_checking_a_folder_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder(tmp_path / "new" / "deeper")
    assert listing(tmp_path) == {}

    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(file_set, "create", refused)
    with pytest.raises(SaveError, match=r"cannot write .*new \(Permission denied\)"):
        check_folder(tmp_path / "new")
