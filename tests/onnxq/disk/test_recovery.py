"""What killed processes left is completed or removed, and named; nothing else is touched."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest

from onnxq.disk import folder_lock
from onnxq.disk.journal import Move, dumps, stamp
from onnxq.disk.recovery import InterruptedWarning, recover
from onnxq.graph import from_proto, load, save
from tests.models.stored_models import listing, model_proto

TOKEN = "0123456789abcdef"
JOURNAL = f".onnxq-{TOKEN}.journal"


def hidden(number: int, kind: str = "new") -> str:
    return f".onnxq-{TOKEN}-{number}.{kind}"


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A set of two whose first file is in place."""
    (tmp_path / "a").write_text("new a")
    (tmp_path / "b").write_text("old b")
    (tmp_path / hidden(1)).write_text("new b")
    (tmp_path / hidden(0, "old")).write_text("old a")
    a, b, old = (stamp(tmp_path / name) for name in ("a", hidden(1), "b"))
    assert a is not None
    assert b is not None
    moves = [Move(hidden(0), "a", a, (1, 1)), Move(hidden(1), "b", b, old)]
    (tmp_path / JOURNAL).write_bytes(dumps(moves))
    return tmp_path


def test_a_set_is_completed_and_named(half: Path) -> None:
    (note,) = recover(half)
    assert note == f"{half}: onnxq was interrupted while replacing a, b; completed now: b"
    assert listing(half) == {"a": b"new a", "b": b"new b"}
    assert recover(half) == []


def test_names_in_a_journal_do_not_act_on_a_terminal(half: Path) -> None:
    moves = json.loads((half / JOURNAL).read_bytes())
    moves["moves"][0]["target"] = "\x1b[2J"
    (half / JOURNAL).write_text(json.dumps(moves))
    assert all(note.isprintable() for note in recover(half))
    (half / JOURNAL).write_bytes(dumps([Move("\x1b[2J", "b", (5, 0), None)]))
    assert all(note.isprintable() for note in recover(half))


def test_a_journal_without_an_end_is_not_read(half: Path) -> None:
    os.truncate(half / JOURNAL, 1 << 40)  # takes no room on the disk
    (note,) = recover(half)
    assert "it is too large" in note


def test_a_set_that_is_complete_is_told(half: Path) -> None:
    os.replace(half / hidden(1), half / "b")
    assert recover(half)[0].endswith("all are in place")
    assert listing(half) == {"a": b"new a", "b": b"new b"}


def test_what_was_changed_since_is_not_overwritten(half: Path) -> None:
    (half / "b").write_text("of the user")
    (note,) = recover(half)
    assert "b has changed since" in note
    assert "convert again, since these files are still old: b" in note
    assert listing(half) == {"a": b"new a", "b": b"of the user"}


def test_a_set_of_which_nothing_was_moved_is_given_up_whole(half: Path) -> None:
    moves = json.loads((half / JOURNAL).read_bytes())
    (half / hidden(0)).write_text("new a")
    found = (half / hidden(0)).stat()
    (half / "a").write_text("old a")
    old = (half / "a").stat()
    moves["moves"][0] |= {
        "new": [found.st_size, found.st_mtime_ns],
        "old": [old.st_size, old.st_mtime_ns],
    }
    (half / JOURNAL).write_text(json.dumps(moves))
    (half / "b").write_text("of the user")
    (note,) = recover(half)
    assert note.endswith("left as is: none was replaced")
    assert listing(half) == {"a": b"old a", "b": b"of the user"}


def test_a_damaged_new_file_is_not_moved(half: Path) -> None:
    (half / hidden(1)).write_text("new")
    recover(half)
    assert listing(half) == {"a": b"new a", "b": b"old b"}


def test_a_link_is_not_followed_on_the_word_of_a_journal(half: Path) -> None:
    """A folder may come from a stranger: reading a model in it must not write elsewhere."""
    elsewhere = half.parent / "elsewhere"
    elsewhere.write_text("old b")
    os.utime(elsewhere, ns=((half / "b").stat().st_mtime_ns,) * 2)
    (half / "b").unlink()
    (half / "b").symlink_to(elsewhere)
    assert "is a link" in recover(half)[0]
    assert elsewhere.read_text() == "old b"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"moves": 1}',
        b'{"moves": [1]}',
        b"[" * 100_000,
        b"\xff",
        dumps([Move(hidden(1), "../b", (5, 0), None)]),
        dumps([Move(hidden(1), "/tmp/b", (5, 0), None)]),
        *(dumps([Move(hidden(1), t, (5, 0), None)]) for t in ("", ".", "..", "nul\0")),
        dumps([Move("a", "b", (5, 0), None)]),
        dumps([Move("../a", "b", (5, 0), None)]),
        dumps([Move(hidden(1).replace("0", "1"), "b", (5, 0), None)]),
    ],
)
def test_what_is_no_journal_of_ours_moves_nothing(half: Path, content: bytes) -> None:
    (half / JOURNAL).write_bytes(content)
    before = listing(half)
    (note,) = recover(half)
    assert "not a valid journal" in note
    assert listing(half) == before


@pytest.mark.parametrize("name", [JOURNAL, hidden(1)])
def test_files_of_strangers_move_nothing(
    half: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a folder for all, such as /tmp, a journal of another user is not carried out."""
    true = Path.lstat

    def owned(path: Path) -> os.stat_result:
        found = list(true(path))
        if path.name == name:
            found[4] += 1  # st_uid
        return os.stat_result(found)

    monkeypatch.setattr(Path, "lstat", owned)
    before = listing(half)
    assert "belongs to another user" in recover(half)[0]
    assert listing(half) == before


def test_only_names_of_ours_are_removed(tmp_path: Path) -> None:
    kept = [
        *(".onnxq", ".onnxq-1.new", f".onnxq-{TOKEN}-1.tmp", f"onnxq-{TOKEN}-1.new"),
        *(f".onnxq-{TOKEN.upper()}-1.new", f".onnxq-{TOKEN}.new", f".onnxq-{TOKEN}-1.new.bak"),
    ]
    for name in (*kept, hidden(0), hidden(1), hidden(2, "old")):
        (tmp_path / name).touch()
    assert recover(tmp_path) == [f"{tmp_path}: removed 2 temporary files of an interrupted onnxq"]
    assert sorted(listing(tmp_path)) == sorted(kept)


def test_links_and_pipes_under_our_names_do_no_harm(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.touch()
    (tmp_path / hidden(0)).symlink_to(target)
    os.mkfifo(tmp_path / hidden(1))
    (tmp_path / hidden(2)).mkdir()
    recover(tmp_path)
    assert target.exists()


@pytest.mark.parametrize("fails", ["replace", "unlink"])
def test_a_folder_that_cannot_be_written_is_told_and_read(
    half: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    save(from_proto(model_proto()), half.parent / "m.onnx")
    os.replace(half.parent / "m.onnx", half / "m.onnx")

    def refused(*arguments: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, fails, refused)
    with pytest.warns(InterruptedWarning, match=r"a, b; .* \(Read-only file system\)"):
        load(half / "m.onnx")


def test_loading_and_saving_see_to_the_folder(half: Path) -> None:
    with pytest.warns(InterruptedWarning) as told:
        save(from_proto(model_proto()), half / "m.onnx")
    assert "completed now: b" in str(told[0].message)
    (half / hidden(0)).touch()
    with pytest.warns(InterruptedWarning, match="removed 1 temporary file"):
        load(half / "m.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(half / "m.onnx")


def test_a_live_process_is_waited_for_but_not_for_ever(
    half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "WAIT", 0.05)
    before = listing(half)
    with folder_lock.folder_lock(half):
        (note,) = recover(half)
    assert "another process has been replacing files in this folder" in note
    assert listing(half) == before


def test_a_disk_without_locks_is_told_and_left(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_lock, "fcntl", None)
    before = listing(half)
    (note,) = recover(half)
    assert JOURNAL in note
    assert listing(half) == before


def test_no_folder_is_no_concern(tmp_path: Path) -> None:
    assert recover(tmp_path / "missing") == []
    assert recover(Path("nul\0")) == []
    assert recover(tmp_path / ("x" * 300)) == []
