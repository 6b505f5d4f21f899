from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from onnx import numpy_helper

from onnxq.errors import OptionError, SaveError
from onnxq.graph import from_proto, load, save
from onnxq.proof.prove import Proof
from onnxq.proof.verify import verify
from onnxq.quant.qparam_table import QParamTable
from onnxq.workflows.artifacts import Artifact, MadeFiles
from tests.models.build import parse
from tests.models.stored_models import BIG, external, model_proto, write

BODY = "g (float[2] x) => (float[2] y) { y = Relu(x) }"


def made(*artifacts: Artifact, proofs: tuple[Proof, ...] = ()) -> MadeFiles:
    return MadeFiles(stem="net", table=QParamTable(), artifacts=artifacts, traces=(), proofs=proofs)


def test_models_texts_and_bytes_are_written_under_the_stem(tmp_path: Path) -> None:
    files = made(
        Artifact("_float.onnx", "model", parse(BODY)),
        Artifact(".json", "text", "{}\n"),
        Artifact(".bin", "bytes", b"\x00\xff"),
    )
    folder = tmp_path / "new" / "folder"
    assert files.save(folder) == files.files
    assert [p.name for p in files.files] == ["net_float.onnx", "net.json", "net.bin"]
    assert (folder / "net.json").read_text() == "{}\n"
    assert (folder / "net.bin").read_bytes() == b"\x00\xff"
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in files.files)


def test_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text("before")
    (tmp_path / "net.bin").mkdir()  # no file can be put there
    files = made(Artifact(".json", "text", "after"), Artifact(".bin", "bytes", b"1"))
    with pytest.raises(SaveError, match=r"net\.bin"):
        files.save(tmp_path)
    assert (tmp_path / "net.json").read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.bin", "net.json"]
    assert files.files == []


def test_a_link_is_written_through(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.json"
    real.write_text("before")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "net.json").symlink_to(real)
    made(Artifact(".json", "text", "after")).save(folder)
    assert (folder / "net.json").is_symlink()
    assert real.read_text() == "after"


def test_a_link_may_lead_to_another_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "mount" / "elsewhere.json"
    real.parent.mkdir()
    real.write_text("before")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "net.json").symlink_to(real)
    move = os.replace

    def within_one_mount(source: Path, target: Path) -> None:
        if real.parent in (source.parent, target.parent) and source.parent != target.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        move(source, target)

    monkeypatch.setattr(os, "replace", within_one_mount)
    made(Artifact(".bin", "bytes", b"1"), Artifact(".json", "text", "after")).save(folder)
    assert real.read_text() == "after"
    assert [p.name for p in real.parent.iterdir()] == ["elsewhere.json"]
    assert sorted(p.name for p in folder.iterdir()) == ["net.bin", "net.json"]


def test_a_link_to_a_missing_folder_leaves_all_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(b"before")
    (tmp_path / "net.json").symlink_to(tmp_path / "missing" / "net.json")
    files = made(Artifact(".bin", "bytes", b"after"), Artifact(".json", "text", "{}"))
    with pytest.raises(SaveError, match=r"cannot write .*net\.json"):
        files.save(tmp_path)
    assert (tmp_path / "net.bin").read_bytes() == b"before"


def test_a_move_that_fails_takes_the_earlier_ones_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.json").write_text("before")
    move = os.replace

    def not_the_last(source: Path, target: Path) -> None:
        if target == tmp_path / "net.bin":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        move(source, target)

    monkeypatch.setattr(os, "replace", not_the_last)
    files = made(
        *(Artifact(".json", "text", "after"), Artifact(".txt", "text", "new")),
        Artifact(".bin", "bytes", b"1"),
    )
    with pytest.raises(SaveError, match=r"cannot write .*net\.bin"):
        files.save(tmp_path)
    assert (tmp_path / "net.json").read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["net.json"]


def test_proven_takes_a_proof_and_all_of_them() -> None:
    proto = parse(BODY).to_proto()
    report = verify(proto, proto)
    good, refused = Proof("a", report), Proof("b", report, refused="no such operator")
    assert not made().proven
    assert made(proofs=(good,)).proven
    assert not made(proofs=(good, refused)).proven
    assert refused.to_json()["passed"] is False
    assert good.to_json()["passed"] is True


def test_a_side_file_may_have_the_name_of_a_data_file(tmp_path: Path) -> None:
    model = from_proto(model_proto())
    save(model, tmp_path / "source.onnx", external_data=True)
    files = made(
        Artifact("_qdq.onnx", "model", load(tmp_path / "source.onnx")),
        Artifact("_qdq.onnx.data", "text", "{}"),
    )
    names = [path.name for path in files.save(tmp_path / "out")]
    assert names == ["net_qdq.onnx", "net_qdq.onnx.1.data", "net_qdq.onnx.data"]
    assert (tmp_path / "out" / "net_qdq.onnx.data").read_text() == "{}"
    load(tmp_path / "out" / "net_qdq.onnx")


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    files = made(Artifact(".json", "text", "1"), Artifact(".json", "text", "2"))
    with pytest.raises(SaveError, match=r"net\.json would be written twice"):
        files.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_side_file_does_not_overwrite_weights_of_a_source(tmp_path: Path) -> None:
    tensor = external(numpy_helper.from_array(BIG, "w"), location="net.json")
    (tmp_path / "net.json").write_bytes(BIG.tobytes())
    source = load(write(tmp_path / "in.onnx", model_proto(tensor)))
    files = made(Artifact(".onnx", "model", source), Artifact(".json", "text", "{}"))
    with pytest.raises(SaveError, match=r"net\.json contains weights of .*in\.onnx"):
        files.save(tmp_path)
    assert (tmp_path / "net.json").read_bytes() == BIG.tobytes()


def test_an_empty_path_is_not_the_current_folder() -> None:
    with pytest.raises(SaveError, match="the path is empty"):
        made(Artifact(".json", "text", "1")).save("")


def test_a_stem_is_a_name(tmp_path: Path) -> None:
    files = made(Artifact(".json", "text", "1"))
    files.stem = "../net"
    with pytest.raises(OptionError, match="cannot be used as a file stem"):
        files.save(tmp_path / "out")
