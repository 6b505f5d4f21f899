"""Nothing is damaged on disk, and nothing without an end is read."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import ModelProto

from onnxq.errors import LoadError, SaveError
from onnxq.graph import Model, load, save
from onnxq.workflows import demo
from onnxq.workflows.convert import convert
from onnxq.workflows.side_export import export_side_file
from tests.hostile import FOLDER
from tests.models.stored_models import listing
from tests.onnxq.conftest import Run, onnxq

__all__ = ["onnxq"]

hostile = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no ../shared/hostile beside the repository"
)


@pytest.fixture(scope="module")
def network() -> Model:
    return demo.quantize(demo.build())


@pytest.fixture
def stored(network: Model, tmp_path: Path) -> Path:
    """A model in a folder of its own."""
    save(network, tmp_path / "net" / "net.onnx")
    return tmp_path / "net" / "net.onnx"


@pytest.fixture
def shared_data(tmp_path: Path) -> Path:
    folder = tmp_path / "shared_data"
    shutil.copytree(FOLDER / "shared_data", folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    return folder


def kept(folder: Path, before: dict[str, bytes]) -> bool:
    return {name: data for name, data in listing(folder).items() if name in before} == before


# -- shared_data: in.onnx keeps its weights in out.onnx.data -------------------------------------


@hostile
def test_saving_does_not_overwrite_the_weights_of_the_source(shared_data: Path) -> None:
    before = listing(shared_data)
    written = save(load(shared_data / "in.onnx"), shared_data / "out.onnx")
    assert [path.name for path in written] == ["out.onnx", "out.onnx.1.data"]
    assert kept(shared_data, before)
    load(shared_data / "in.onnx")


@hostile
def test_nor_does_run(onnxq: Run, shared_data: Path) -> None:
    before = listing(shared_data)
    words = ("-p", "drop-identity", "-o", shared_data / "out.onnx")
    code, out, err = onnxq("run", shared_data / "in.onnx", *words)
    assert code == 0, err
    assert "out.onnx.1.data" in "".join(out.split())
    assert kept(shared_data, before)


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "ncnn"])
def test_nor_does_a_conversion_whose_files_have_such_names(
    network: Model, tmp_path: Path, backend: str
) -> None:
    """Every name that the conversion would take holds the weights of the source, in turn."""
    plain = convert(network, backend, verify=False, stem="net", allow_requantize=True)
    names = [path.name for path in plain.save(tmp_path / "plain")]
    for name in (*names, *(f"{n}.data" for n in names if n.endswith(".onnx"))):
        folder = tmp_path / name
        save(network, folder / "net.onnx", external_data=True)
        move_data(folder / "net.onnx", name)
        before = listing(folder)
        made = convert(
            folder / "net.onnx", backend, verify=False, stem="net", allow_requantize=True
        )
        if name in names:
            with pytest.raises(SaveError, match=r"contains weights of .*net\.onnx"):
                made.save(folder)
            assert listing(folder) == before
        else:
            made.save(folder)
        assert kept(folder, before)


def move_data(path: Path, name: str) -> None:
    """Give another name to the data file of a model."""
    proto = ModelProto.FromString(path.read_bytes())
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
    path.write_bytes(proto.SerializeToString())
    path.with_name(f"{path.name}.data").rename(path.with_name(name))


def test_nor_do_encodings(network: Model, tmp_path: Path) -> None:
    save(network, tmp_path / "net.onnx", external_data=True)
    move_data(tmp_path / "net.onnx", "net_float.onnx.data")
    before = listing(tmp_path)
    export_side_file(tmp_path / "net.onnx", "onnxq", verify=False).save(tmp_path)
    assert kept(tmp_path, before)
    assert (tmp_path / "net_float.onnx.1.data").exists()


# -- kill -9 between the renames -----------------------------------------------------------------


def test_killed_conversions_leave_a_set_or_one_that_is_completed() -> None:
    """Whole commands; each step in turn is killed in tests/onnxq/disk/test_file_set.py."""
    words = [sys.executable, "-m", "tests.hostile.kill_conversions", "--count", "4"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


# -- mode 0600 -----------------------------------------------------------------------------------


def test_a_private_file_is_replaced_by_a_private_one(onnxq: Run, stored: Path) -> None:
    output = stored.parent / "out.onnx"
    output.touch(0o600)
    words = ("run", stored, "-p", "drop-identity", "-o", output)
    assert onnxq(*words)[0] == 0
    assert stat.S_IMODE(output.stat().st_mode) == 0o600
    folder = stored.parent / "out"
    words = ("convert", stored, "-b", "tensorrt", "-o", folder, "--no-verify")
    assert onnxq(*words)[0] == 0
    for path in folder.iterdir():
        path.chmod(0o600)
    assert onnxq(*words)[0] == 0
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


# -- no end, no place ----------------------------------------------------------------------------


def endless(folder: Path) -> list[Path]:
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.npz")
    return [Path("/dev/zero"), folder / "pipe", folder / "pipe.npz", folder]


def test_what_has_no_end_is_not_read(onnxq: Run, stored: Path, tmp_path: Path) -> None:
    for path in endless(tmp_path):
        for words in (
            ("inspect", path),
            ("lint", path, "-b", "tvm"),
            ("explain", path, "x"),
            ("verify", stored, path),
            ("verify", path, stored),
            ("verify", stored, stored, "--data", path),
            ("convert", path, "-b", "tvm", "-o", tmp_path / "out"),
            ("convert", stored, "-b", "tvm", "-o", path / "out", "--data", path),
            ("inspect", stored, "--encodings", path),
            ("run", stored, "-p", f"apply-qparams{{table='{path}'}}", "-o", tmp_path / "o.onnx"),
            ("encodings", path, "-f", "aimet-1.0.0", "-o", tmp_path / "out"),
        ):
            code, out, err = onnxq(*words)
            assert code == 2, (words, out, err)
            assert "next:" in err
            assert "--debug" not in err, (words, err)


def test_external_data_without_an_end_is_not_read(network: Model, tmp_path: Path) -> None:
    save(network, tmp_path / "net.onnx", external_data=True)
    data = tmp_path / "net.onnx.data"
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(LoadError, match=r"net\.onnx\.data': this is a pipe"):
        load(tmp_path / "net.onnx")
    data.unlink()
    data.symlink_to("/dev/zero")
    with pytest.raises(LoadError, match=r"net\.onnx\.data': this is a device"):
        load(tmp_path / "net.onnx")


@hostile
@pytest.mark.parametrize("name", ["fuzz_18", "e_longname"])
def test_data_under_a_name_that_no_disk_holds_is_refused(name: str) -> None:
    with pytest.raises(LoadError, match="File name too long") as caught:
        load(FOLDER / f"{name}.onnx")
    assert caught.value.fix


@pytest.mark.parametrize("name", ["x" * 300, "y" * 300 + "/z", "loop", "loop/z", "net.onnx/z"])
def test_output_that_cannot_be(onnxq: Run, stored: Path, name: str) -> None:
    path = stored.parent / name
    (stored.parent / "loop").symlink_to("loop")
    for words in (
        ("convert", stored, "-b", "tvm", "-o", path),
        ("run", stored, "-p", "drop-identity", "-o", path),
        ("encodings", stored, "-f", "aimet-1.0.0", "-o", path),
        ("demo", "-o", path),
        ("run", stored, "-p", "drop-identity", "-o", stored.parent / "o.onnx", "--dump", path),
        ("inspect", path),
    ):
        code, _, err = onnxq(*words)
        assert code == 2, (words, err)
        assert "--debug" not in err, (words, err)
    assert sorted(p.name for p in stored.parent.iterdir()) == ["loop", "net.onnx"]
