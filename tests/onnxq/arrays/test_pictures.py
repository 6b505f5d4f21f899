"""Pictures: values, layouts and channels against numpy, order, and pictures that cannot be read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.arrays import pictures
from onnxq.arrays.pictures import Pictures, PictureStack, is_picture
from onnxq.errors import LoadError, OptionError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (the extra 'images')")

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)


def write(path: Path, pixels: np.ndarray = PIXELS, **options: Any) -> Path:
    Image.fromarray(pixels).save(path, **options)
    return path


def only(found: Pictures) -> np.ndarray:
    (value,) = found
    return value


def test_values_are_normalised_per_channel(tmp_path: Path) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    path = write(tmp_path / "a.png")
    found = only(Pictures(path, (4, 6), mean, std))
    exact = ((PIXELS / 255.0 - mean) / std).transpose(2, 0, 1)
    assert found.dtype == np.float32
    assert np.array_equal(found, exact.astype(np.float32))
    assert np.array_equal(
        only(Pictures(path, (4, 6))), (PIXELS / 255).transpose(2, 0, 1).astype("f4")
    )


def test_layout_and_channels(tmp_path: Path) -> None:
    path = write(tmp_path / "a.png")
    found = only(Pictures(path, (4, 6), mean=(0.1, 0.2, 0.3), layout="nhwc", channels="bgr"))
    assert found.shape == (4, 6, 3)
    # The numbers of --mean are in the order of the channels that the model gets.
    exact = PIXELS[..., ::-1] / 255.0 - np.array([0.1, 0.2, 0.3])
    assert np.array_equal(found, exact.astype(np.float32))
    gray = only(Pictures(path, (4, 6), channels="gray"))
    assert gray.shape == (1, 4, 6)
    luma = PIXELS @ np.array([0.299, 0.587, 0.114])
    assert np.abs(gray[0] * 255 - luma).max() <= 1


def test_pictures_are_resized_without_cropping(tmp_path: Path) -> None:
    halves = np.zeros((10, 40, 3), np.uint8)
    halves[:, 20:] = 200
    found = only(Pictures(write(tmp_path / "a.png", halves), (8, 8), layout="nhwc"))
    assert found.shape == (8, 8, 3)
    assert np.all(found[:, :3] == 0)
    assert np.all(found[:, 5:] == np.float32(200 / 255))


def test_integers_are_the_pixels(tmp_path: Path) -> None:
    whole = Pictures(write(tmp_path / "a.png"), (4, 6), layout="nhwc")
    stack = PictureStack(whole.path, whole, integers=True)
    (found,) = stack.pieces(None)
    assert (stack.dtype, stack.shape) == (np.uint8, (4, 6, 3))
    assert np.array_equal(found, PIXELS)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "1", "CMYK", "LA"])
def test_every_mode_of_8_bits_is_converted(mode: str, tmp_path: Path) -> None:
    name = "a.tif" if mode == "CMYK" else "a.png"
    Image.fromarray(PIXELS).convert(mode).save(tmp_path / name)
    assert only(Pictures(tmp_path / name, (4, 6))).shape == (3, 4, 6)


def test_a_folder_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name, value in (("b.PNG", 2), ("a.jpg", 1), ("c.webp", 3), ("d.bmp", 4)):
        write(tmp_path / name, np.full((8, 8, 3), value * 50, np.uint8))
    (tmp_path / "notes.txt").write_text("not a picture")
    (tmp_path / "x.npy").write_bytes(b"")
    whole = Pictures(tmp_path, (8, 8))
    assert [file.name for file in whole.files()] == ["a.jpg", "b.PNG", "c.webp", "d.bmp"]
    assert [round(float(v.mean()) * 255 / 50) for v in whole] == [1, 2, 3, 4]


def test_pictures_are_read_one_at_a_time(tmp_path: Path) -> None:
    write(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    found = iter(Pictures(tmp_path, (4, 6)))
    next(found)
    with pytest.raises(LoadError, match=r"b\.png"):
        next(found)


@pytest.mark.parametrize("how", ["text", "cut off", "empty", "deep", "folder", "missing"])
def test_a_picture_that_cannot_be_read_is_named(how: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.png"
    if how == "text":
        path.write_bytes(b"hello")
    elif how == "cut off":
        data = write(path, np.tile(PIXELS, (40, 40, 1))).read_bytes()
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "deep":
        Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(path)
    elif how == "folder":
        path.mkdir()
        path = tmp_path
    with pytest.raises(LoadError) as error:
        list(Pictures(path, (4, 6)))
    assert "bad.png" in error.value.what
    assert error.value.fix


def test_a_folder_without_pictures_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "a.png")
    with pytest.raises(LoadError, match="contains no picture") as error:
        list(Pictures(tmp_path, (4, 6)))
    assert "not into folders within it" in error.value.fix


@pytest.mark.parametrize(
    "options",
    [
        {"size": (0, 4)},
        {"size": (4, 1 << 20)},
        {"size": (4, 4), "mean": (0.1, 0.2)},
        {"size": (4, 4), "std": (1.0, 0.0, 1.0)},
        {"size": (4, 4), "std": (float("nan"),)},
        {"size": (4, 4), "mean": (0.1, 0.2, 0.3), "channels": "gray"},
    ],
)
def test_options_that_make_no_sense_are_errors(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(OptionError) as error:
        Pictures(tmp_path, **options)
    assert error.value.fix


def test_without_pillow_the_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    path = write(tmp_path / "a.png")
    monkeypatch.setattr(pictures.importlib, "import_module", absent)
    with pytest.raises(OptionError, match="needs Pillow") as error:
        list(Pictures(path, (4, 6)))
    assert error.value.fix == "pip install pillow"


def test_they_can_be_sent_to_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.png")
    monkeypatch.chdir(tmp_path)
    sent = pickle.loads(pickle.dumps(Pictures(Path("a.png"), (4, 6)).absolute()))
    monkeypatch.chdir("/")
    assert only(sent).shape == (3, 4, 6)


def test_names_of_pictures() -> None:
    assert is_picture(Path("a.JPEG"))
    assert not is_picture(Path("a.npz"))
