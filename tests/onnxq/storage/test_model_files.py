"""Files are read with clear errors and written all or nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from onnxq.disk.file_set import FileSet
from onnxq.errors import InvalidModelError, LoadError, OnnxqError, SaveError
from onnxq.graph import from_proto, load, save
from onnxq.storage import model_files, tensors
from tests.models.stored_models import BIG, change, listing, model_proto, stored_model, value, write


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return stored_model(tmp_path)


# -- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "the file is empty"),
        (b"certainly not a protobuf", "not an ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not an ONNX model"),
        (model_proto().SerializeToString()[:-50], "not an ONNX model"),
        (b"\x08\x08", "not an ONNX model"),
    ],
    ids=["missing", "empty", "text", "picture", "truncated", "no graph"],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError, match=message) as caught:
        load(path)
    assert str(path) in caught.value.what
    assert caught.value.fix


def test_folder_is_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="this is a folder, not a regular file"):
        load(tmp_path)


def test_invalid_graph_names_the_file(tmp_path: Path) -> None:
    proto = model_proto()
    proto.graph.node[0].input[0] = "nowhere"
    path = write(tmp_path / "m.onnx", proto)
    with pytest.raises(InvalidModelError, match="nowhere") as caught:
        load(path)
    assert caught.value.what.startswith(str(path))


def test_unreadable_table_in_metadata_names_the_file(tmp_path: Path) -> None:
    proto = model_proto()
    proto.metadata_props.add(key="onnxq.qparams", value="{")
    path = write(tmp_path / "m.onnx", proto)
    with pytest.raises(OnnxqError) as caught:
        load(path)
    assert caught.value.what.startswith(str(path))


# -- all or nothing ---------------------------------------------------------------------------


def test_saving_over_the_model_whose_data_is_mapped(stored: Path) -> None:
    model = load(stored)
    other = load(stored)
    old = value(model, "b")
    change(model, "a", BIG * 3)
    model.sweep()
    save(model, stored)
    assert np.array_equal(old, BIG + 1)  # the mapping outlives the file
    assert np.array_equal(value(model, "b"), BIG + 1)  # found at its new place
    assert np.array_equal(value(load(stored), "b"), BIG + 1)
    assert np.array_equal(value(load(stored), "a_1"), BIG * 3)
    with pytest.raises(LoadError, match="was changed after the model was loaded"):
        value(other, "b")


def test_saving_twice_in_place_grows_nothing(stored: Path) -> None:
    before = listing(stored.parent)
    model = load(stored)
    for _ in range(3):
        save(model, stored)
    assert listing(stored.parent) == before


def test_saving_one_of_two_copies_moves_both(stored: Path) -> None:
    model = load(stored)
    twin = model.clone()
    change(twin, "a", BIG * 3)
    twin.sweep()
    save(twin, stored)
    assert np.array_equal(value(model, "b"), BIG + 1)


def failing(wanted: int) -> Any:
    """os.replace that fails at its `wanted`-th call."""
    calls: Iterator[int] = iter(range(100))
    true = os.replace

    def replace(source: Any, target: Any) -> None:
        if next(calls) == wanted:
            raise OSError(28, "No space left on device")
        true(source, target)

    return replace


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("present", [True, False], ids=["over old files", "new files"])
def test_failure_while_moving_into_place_leaves_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, present: bool
) -> None:
    path = tmp_path / "m.onnx"
    if present:
        save(from_proto(model_proto()), path, external_data=True)
    before = listing(tmp_path)
    model = from_proto(model_proto(numpy_helper.from_array(BIG + 5, "v")))
    monkeypatch.setattr(os, "replace", failing(at))
    with pytest.raises(SaveError, match="No space left on device") as caught:
        save(model, path, external_data=True)
    assert str(path) in caught.value.what
    assert listing(tmp_path) == before


def test_failure_while_making_the_second_backup_leaves_everything(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(stored.parent)

    def no_link(*args: object, **kwargs: object) -> None:
        raise OSError(31, "Too many links")

    monkeypatch.setattr(os, "link", no_link)  # falls back to a copy
    monkeypatch.setattr(os, "replace", failing(1))
    with pytest.raises(SaveError):
        save(
            from_proto(model_proto(numpy_helper.from_array(BIG + 5, "v"))),
            stored,
            external_data=True,
        )
    assert listing(stored.parent) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), LoadError("x", fix="y")])
@pytest.mark.parametrize("external_data", [False, True])
def test_failure_while_writing_leaves_everything(
    stored: Path, error: BaseException, external_data: bool
) -> None:
    before = listing(stored.parent)
    model = load(stored)

    def interrupted(constant: Any) -> TensorProto:
        raise error

    with pytest.raises(type(error)):
        model_files.write_model(lambda writer: interrupted(None), stored, external_data)
    assert listing(stored.parent) == before
    assert np.array_equal(value(model, "a"), BIG)


def test_full_disk_while_writing_data_leaves_everything(
    stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = listing(stored.parent)

    def full(self: object) -> Iterator[bytes]:
        yield b"some"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensors.ExternalData, "chunks", full)
    with pytest.raises(SaveError, match="No space left"):
        save(load(stored), stored)
    assert listing(stored.parent) == before


def test_missing_source_data_is_not_blamed_on_the_target(stored: Path, tmp_path: Path) -> None:
    model = load(stored)
    stored.with_name("m.onnx.data").unlink()
    with pytest.raises(LoadError, match=r"m\.onnx\.data' can no longer be read"):
        save(model, tmp_path / "out" / "n.onnx")
    assert not list((tmp_path / "out").iterdir())


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for target in (tmp_path / "file" / "m.onnx", tmp_path / "file" / "deeper" / "m.onnx"):
        with pytest.raises(SaveError, match="cannot write") as caught:
            save(from_proto(model_proto()), target)
        assert str(target) in caught.value.what
    assert listing(tmp_path) == {"file": b"in the way"}


def test_target_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(SaveError, match="is a folder"):
        save(from_proto(model_proto()), tmp_path / "m.onnx")
    (tmp_path / "n.onnx.data").mkdir()
    with pytest.raises(SaveError, match="is a folder"):
        save(from_proto(model_proto()), tmp_path / "n.onnx", external_data=True)
    assert not (tmp_path / "n.onnx").exists()


def test_folders_are_made_and_files_are_ordinary(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / ("m" * 240 + ".onnx")
    plain = tmp_path / "plain"
    plain.touch()
    assert save(from_proto(model_proto()), path) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_text_files_are_written_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileSet(tmp_path) as files:
        files.stage("t.json").write("old ü".encode())
    monkeypatch.setattr(os, "replace", failing(0))
    with pytest.raises(SaveError), FileSet(tmp_path) as files:
        files.stage("t.json").write(b"new")
    assert listing(tmp_path) == {"t.json": "old ü".encode()}
