"""What has no end is never read."""

from __future__ import annotations

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from onnxq.disk import regular_file
from onnxq.errors import LoadError


@pytest.mark.parametrize("use", [regular_file.status, regular_file.open_, regular_file.read])
def test_only_regular_files(tmp_path: Path, use: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(use)
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("zero").symlink_to("/dev/zero")
    Path("file").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    for name, message in [
        (".", "this is a folder"),
        ("", "this is a folder"),
        ("pipe", "this is a pipe"),
        ("socket", "this is a socket"),
        ("zero", "this is a device"),
        ("/dev/zero", "this is a device"),
        ("missing", "no such file"),
        ("loop", "Too many levels of symbolic links"),
        ("file/x", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("nul\0", "embedded null byte"),
    ]:
        with pytest.raises(LoadError, match=message):
            use(Path(name))


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    monkeypatch.setattr(regular_file, "status", lambda path: None)
    with pytest.raises(LoadError, match="this is a pipe"):
        regular_file.open_(tmp_path / "pipe")


def test_content_and_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12")
    assert regular_file.read(path) == b"12"
    os.truncate(path, (1 << 31) + 1)  # takes no room on the disk
    with pytest.raises(LoadError, match="2147483649 bytes; the limit is 2 GiB"):
        regular_file.read(path)


def test_reading_takes_no_more_memory_than_the_file_is_large(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(1000))
    tracemalloc.start()
    try:
        assert regular_file.read(tmp_path / "f") == bytes(1000)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_missing_file_leads_to_one_of_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(LoadError) as error:
        regular_file.status(tmp_path / "model.onx")
    assert error.value.fix == f"check the path: did you mean '{tmp_path / 'model.onnx'}'?"
    for other in (tmp_path / "else.npz", tmp_path / "none" / "model.onnx"):
        with pytest.raises(LoadError) as error:
            regular_file.status(other)
        assert error.value.fix == "check the path"
