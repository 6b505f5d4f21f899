from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from onnxq.disk.scratch import scratch_folder
from onnxq.errors import SaveError
from onnxq.workflows import demo
from onnxq.workflows.convert import convert


def test_a_folder_comes_and_goes() -> None:
    with scratch_folder() as folder:
        (folder / "a").touch()
    assert not folder.exists()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = demo.quantize(demo.build())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    true = os.open

    def full(path: object, flags: int, *arguments: object, **options: object) -> int:
        if flags & os.O_CREAT and str(path).startswith(str(tmp_path)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true(path, flags, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(SaveError, match="No space left on device") as caught:
        convert(network, "tvm")
    assert str(tmp_path) in caught.value.what


def test_no_temporary_folder_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(SaveError, match=r"cannot write to .*missing") as caught, scratch_folder():
        raise AssertionError("there is a folder")
    assert "TMPDIR" in caught.value.fix
