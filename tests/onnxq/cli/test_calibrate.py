"""The commands calibrate and calibrate merge: the same bytes every way, and every error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq import cli
from onnxq.graph import save
from onnxq.observing import observe as observing
from onnxq.observing.statistics import Statistics
from onnxq.workflows import demo
from tests.models.build import parse

IMAGES = np.random.default_rng(0).normal(size=(40, 3, 32, 32)).astype(np.float32)
BRANCH = """g (float[1,4] x) => (float[1,2] y)
<float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float zero = {0}> {
  top = ReduceMax <keepdims = 0> (x)  c = Greater(top, zero)
  y = If (c) <
    then_branch = t () => (float[1,2] a) { p = Abs(x)  a = MatMul(p, w) },
    else_branch = e () => (float[1,2] b) { q = Sigmoid(x)  b = MatMul(q, w) }>
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    save(demo.build(), made / "m.onnx")
    save(demo.quantize(demo.build()), made / "quantized.onnx")
    np.savez(made / "d.npz", image=IMAGES[:12])
    return made


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main([str(word) for word in words])
    return int(ended.value.code or 0)


def calibrate(folder: Path, output: Path, *words: object, data: Path | None = None) -> int:
    given = folder / "d.npz" if data is None else data
    model = folder / "m.onnx"
    return call("calibrate", model, "-b", "onnxruntime", "--data", given, "-o", output, *words)


def test_shards_are_merged_to_the_bytes_of_one_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(folder, tmp_path / "all.stats") == 0
    shown = capsys.readouterr().out
    assert "12 samples" in shown
    assert "stem.relu.out" in shown
    for number in (1, 2, 3):
        assert calibrate(folder, tmp_path / f"{number}.stats", "--shard", f"{number}/3") == 0
    parts = [tmp_path / f"{number}.stats" for number in (2, 3, 1)]
    assert call("calibrate", "merge", *parts[:2], "-o", tmp_path / "merged.stats") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "statistics of parts 2/3, 3/3 of the data: merge the others, too" in shown
    assert call("calibrate", "merge", *parts, "-o", tmp_path / "merged.stats") == 0
    assert "merge the others" not in capsys.readouterr().out
    assert (tmp_path / "merged.stats").read_bytes() == (tmp_path / "all.stats").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["1.stats", "2.stats", "3.stats", "all.stats", "merged.stats"]
    )


def test_json(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate(folder, tmp_path / "all.stats", "--samples", "3", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["samples"] == 3
    assert document["files"] == [str(tmp_path / "all.stats")]
    image = next(t for t in document["tensors"] if t["name"] == "image")
    assert image == {"name": "image", "low": IMAGES[:3].min(), "high": IMAGES[:3].max()}
    assert document["notes"] == []


def test_a_model_that_is_called_merge(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "merge").write_bytes((folder / "m.onnx").read_bytes())
    words = ("-b", "onnxruntime", "--data", folder / "d.npz", "-o", "a.stats")
    assert call("calibrate", "./merge", *words) == 0
    assert (tmp_path / "a.stats").exists()


def test_notes_on_what_was_never_seen_and_never_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(parse(BRANCH), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=np.ones((3, 1, 4), np.float32))
    words = ("-b", "onnxruntime", "--data", tmp_path / "d.npz", "-o", tmp_path / "a.stats")
    assert call("calibrate", tmp_path / "m.onnx", *words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    tensors = {t["name"]: t for t in document["tensors"]}
    assert tensors["p"]["high"] == 1.0
    assert tensors["q"] == {"name": "q", "low": None, "high": None}
    assert any("'q' had no values" in note for note in document["notes"])
    assert any("'p' had the same value" in note for note in document["notes"])


def test_pictures(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (the extra 'images')")
    data = tmp_path / "pictures"
    data.mkdir()
    for number in range(5):
        pixels = np.full((20, 30, 3), 50 * number, np.uint8)
        image.fromarray(pixels).save(data / f"{number}.png")
    options = ("--image-size", "32x32", "--mean", "0.5", "--std", "0.25")
    assert calibrate(folder, tmp_path / "a.stats", *options, data=data) == 0
    found = Statistics.load(tmp_path / "a.stats")
    assert found.samples == 5
    ends = found.tensors["image"].histogram
    assert ends.low == -2
    assert ends.high == np.float32((200 / 255 - 0.5) / 0.25)
    capsys.readouterr()
    assert calibrate(folder, tmp_path / "b.stats", *options, "--shard", "2/5", data=data) == 0
    # The same folder for the proof of a conversion, and for a comparison.
    proof = ("--data", data, "--image-size", "32x32", "--json")
    quantized = folder / "quantized.onnx"
    assert call("convert", quantized, "-b", "onnxruntime", "-o", tmp_path / "out", *proof) == 0
    assert call("verify", quantized, quantized, *proof) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["samples"] == 5


# -- resuming -----------------------------------------------------------------------------------


def test_an_interrupted_run_is_continued(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "all.stats"
    add = observing._Run.add

    def interrupted(self: Any, sample: observing.Sample, *more: Any) -> None:
        if sample.number == 7:
            raise KeyboardInterrupt
        add(self, sample, *more)

    with monkeypatch.context() as patch:
        patch.setattr(observing._Run, "add", interrupted)
        assert calibrate(folder, output) == 130
    assert "all.stats.partial': continue with --resume" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["all.stats.partial"]
    assert calibrate(folder, output) == 2
    assert "--resume" in capsys.readouterr().err
    assert call("calibrate", "merge", tmp_path / "all.stats.partial", "-o", output) == 2
    assert "not finished" in capsys.readouterr().err
    assert calibrate(folder, output, "--resume", "--shard", "1/2") == 2
    assert "another run" in capsys.readouterr().err
    assert calibrate(folder, output, "--resume") == 0
    assert [p.name for p in tmp_path.iterdir()] == ["all.stats"]
    assert calibrate(folder, tmp_path / "again.stats") == 0
    assert output.read_bytes() == (tmp_path / "again.stats").read_bytes()


# -- errors -------------------------------------------------------------------------------------


def _save(name: str, **arrays: np.ndarray) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        np.savez(folder / name, **arrays)
        return folder / name

    return make


def _empty(folder: Path) -> Path:
    (folder / "nothing").mkdir()
    return folder / "nothing"


def _mixed(folder: Path) -> Path:
    _empty(folder)
    np.save(folder / "nothing" / "0.npy", IMAGES[0])
    np.save(folder / "nothing" / "1.npy", np.zeros((3, 48, 32), np.float32))
    return folder / "nothing"


def _broken_picture(folder: Path) -> Path:
    pytest.importorskip("PIL.Image", reason="Pillow is not installed (the extra 'images')")
    _empty(folder)
    (folder / "nothing" / "cat.jpg").write_bytes(b"not a picture")
    return folder / "nothing"


def _with_nan() -> np.ndarray:
    images = IMAGES.copy()
    images[36, 1, 2, 3] = np.nan
    return images


BAD_DATA: dict[str, tuple[Callable[[Path], Path], tuple[str, ...], str, str]] = {
    "an empty folder": (_empty, (), "nothing", "put the samples into it"),
    "no file": (lambda f: f / "none.npz", (), "none.npz", "check the path"),
    "wrong names": (
        _save("d.npz", picture=IMAGES[:2], label=IMAGES[:2]),
        (),
        "no array for input 'image'",
        "name the arrays",
    ),
    "a wrong name for the only input": (
        _save("d.npz", picture=IMAGES[:2]),
        (),
        "no array for input 'image' (found: picture)",
        "name the arrays",
    ),
    "wrong shapes": (
        _save("d.npz", image=IMAGES[:2, :, :16]),
        (),
        "[2, 3, 16, 32]",
        "give the shape of the input",
    ),
    "mixed shapes": (_mixed, (), "1.npy", "give the shape of the input"),
    "an unreadable picture": (
        _broken_picture,
        ("--image-size", "32x32"),
        "cat.jpg",
        "remove the file",
    ),
    "pictures without a size": (_broken_picture, (), "no .npy or .npz", "--image-size"),
    "pictures of another size": (
        _broken_picture,
        ("--image-size", "8x8"),
        "'image'",
        "--image-size",
    ),
    "NaN in sample 37": (
        _save("d.npz", image=_with_nan()),
        (),
        "sample 37 (",
        "remove the sample",
    ),
    "no samples": (_save("d.npz", image=IMAGES[:0]), (), "no samples", "at least one"),
}


@pytest.mark.parametrize("what", BAD_DATA)
def test_bad_data_is_one_error_and_writes_nothing(
    what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, options, named, fix = BAD_DATA[what]
    output = tmp_path / "out" / "a.stats"
    assert calibrate(folder, output, *options, data=make(tmp_path)) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert error.count("error:") == 1
    assert named in error
    assert fix in error.partition("next:")[2]
    assert not output.parent.exists()


def test_no_data(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-b", "onnxruntime", "-o", tmp_path / "a.stats")
    assert call("calibrate", folder / "m.onnx", *words) == 2
    error = capsys.readouterr().err
    assert "need data" in error
    assert "--data" in error
    assert list(tmp_path.iterdir()) == []


def test_a_quantized_model_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("-b", "onnxruntime", "--data", folder / "d.npz", "-o", tmp_path / "a.stats")
    assert call("calibrate", folder / "quantized.onnx", *words) == 2
    assert "quantized already" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["broken", "another model", "twice", "copied", "missing"])
def test_parts_that_cannot_be_merged(
    what: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, output = (tmp_path / f"{name}.stats" for name in ("one", "two", "all"))
    assert calibrate(folder, one, "--samples", "1") == 0
    if what == "broken":
        two.write_bytes(one.read_bytes()[:1000])
    elif what == "another model":
        save(demo.build(seed=1), tmp_path / "m.onnx")
        assert calibrate(tmp_path, two, "--samples", "1", data=folder / "d.npz") == 0
    elif what == "twice":
        two = tmp_path / "." / "one.stats"
    elif what == "copied":
        two.write_bytes(one.read_bytes())
    capsys.readouterr()
    assert call("calibrate", "merge", one, two, "-o", output) == 2
    error = capsys.readouterr().err
    assert error.count("error:") == 1
    assert two.name in error
    assert not output.exists()


def test_an_output_that_cannot_be_written_is_found_before_the_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "observe", None)
    assert calibrate(folder, tmp_path) == 2
