"""Records of data: which files, under which names, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.arrays.pictures import Pictures
from onnxq.errors import LoadError
from onnxq.running.ort_tensors import TensorSpec
from onnxq.running.records import files_of, matches, records
from onnxq.running.samples import given_samples, samples

Shape = tuple[int | str | None, ...]


def spec(name: str = "x", shape: Shape = (1, 3, 4, 6), dtype: object = np.float32) -> TensorSpec:
    return TensorSpec(name, shape, "tensor", np.dtype(dtype))


def picture(path: Path, value: int = 51) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed (the extra 'images')")
    image.fromarray(np.full((4, 6, 3), value, np.uint8)).save(path)


def test_where_each_record_comes_from(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.zeros(2))
    np.savez(tmp_path / "a.npz", x=np.zeros(2))
    found = [where for where, _ in records(tmp_path, [spec(shape=(2,))])]
    assert found == [f"'{tmp_path / 'a.npz'}'", f"'{tmp_path / 'b.npy'}'"]
    assert [where for where, _ in records([np.zeros(2)], [spec(shape=(2,))])] == ["data[0]"]


def test_arrays_beside_pictures_are_refused(tmp_path: Path) -> None:
    """Whatever is not read would be left out in silence."""
    np.save(tmp_path / "b.npy", np.zeros((1, 3, 4, 6), np.float32))
    picture(tmp_path / "a.png")
    for data in (tmp_path, Pictures(tmp_path, (4, 6))):
        with pytest.raises(LoadError, match=r"arrays \('b.npy'\) and pictures \('a.png'\)"):
            list(records(data, [spec(shape=(1, 3, 4, 6))]))


def test_files_of_data(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.zeros(2))
    picture(tmp_path / "a.png")
    assert files_of(tmp_path) == [tmp_path / "b.npy"]
    assert files_of(str(tmp_path / "b.npy")) == [tmp_path / "b.npy"]
    assert files_of(Pictures(tmp_path, (4, 6))) == [tmp_path / "a.png"]
    assert files_of([np.zeros(2)]) == files_of(None) == []


@pytest.mark.parametrize("shape", [(1, 3, 4, 6), ("N", 3, "H", "W"), (None, None, None, None)])
def test_pictures_fit_an_input(shape: Shape, tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "b.png", 102)
    feeds = list(samples([spec(shape=shape)], Pictures(tmp_path, (4, 6))))
    assert [f["x"].shape for f in feeds] == [(1, 3, 4, 6)] * 2
    assert [round(float(f["x"].max()), 6) for f in feeds] == [0.2, 0.4]


def test_an_integer_input_takes_the_pixels(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    whole = Pictures(tmp_path, (4, 6), layout="nhwc")
    (feed,) = samples([spec(shape=(1, 4, 6, 3), dtype=np.uint8)], whole)
    assert feed["x"].dtype == np.uint8
    assert np.all(feed["x"] == 51)
    with pytest.raises(LoadError, match="without a mean") as error:
        list(samples([spec(dtype=np.uint8)], Pictures(tmp_path, (4, 6), mean=(0.5,))))
    assert "--mean" in error.value.fix


@pytest.mark.parametrize("shape", [(1, 3, 4, 7), (1, 4, 6, 3), (1, 1, 4, 6), (3, 24), (8, 3, 4, 6)])
def test_pictures_of_another_shape_are_refused_before_they_are_read(
    shape: Shape, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(b"broken")
    with pytest.raises(LoadError, match="input 'x'") as error:
        list(samples([spec(shape=shape)], Pictures(tmp_path, (4, 6))))
    assert "--image-size" in error.value.fix


def test_pictures_are_for_models_with_one_input(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(LoadError, match="2 inputs"):
        list(samples([spec(), spec("z")], Pictures(tmp_path, (4, 6))))


def test_a_folder_or_file_of_pictures_without_a_size_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    for path in (tmp_path, tmp_path / "a.png"):
        with pytest.raises(LoadError) as error:
            list(samples([spec()], path))
        assert "--image-size" in error.value.fix


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="contains no") as error:
        list(samples([spec()], tmp_path))
    assert error.value.fix == "put the samples into it"


def test_numbers_of_samples_count_over_all_files(tmp_path: Path) -> None:
    for name, count in (("a", 3), ("b", 1), ("c", 4)):
        np.save(tmp_path / f"{name}.npy", np.zeros((count, 1, 2)))
    inputs = [spec(shape=(1, 2))]
    second = list(given_samples(inputs, tmp_path, first=1, every=2))
    assert [s.number for s in second] == [1, 3, 5, 7]
    assert [Path(s.where.strip("'")).name for s in second] == ["a.npy", "b.npy", "c.npy", "c.npy"]
    assert [s.number for s in given_samples(inputs, tmp_path, most=4)] == [0, 1, 2, 3]
    assert [s.number for s in given_samples(inputs, tmp_path, first=6, every=9)] == [6]
    assert list(given_samples(inputs, tmp_path, first=8, every=9)) == []


def test_files_of_other_parts_are_not_read(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    data = Pictures(tmp_path, (4, 6))
    assert [s.number for s in given_samples([spec()], data, first=0, every=2)] == [0]
    with pytest.raises(LoadError, match=r"b\.png"):
        list(given_samples([spec()], data, first=1, every=2))


def test_open_dimensions_match_any_size() -> None:
    assert matches((3, 4), ("N", 4))
    assert matches((3, 4), (None, -1))
    assert not matches((3, 4), (3, 5))


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (("n", 3, 32, 48), "--image-size 32x48 --layout nchw"),
        ((1, 32, 48, 1), "--image-size 32x48 --layout nhwc --channels gray"),
        ((1, 3, None, None), "--image-size HxW --layout nchw"),
        ((1, 8), "--image-size HxW"),
    ],
)
def test_pictures_without_a_size_are_told_the_size_of_the_input(
    shape: Shape, told: str, tmp_path: Path
) -> None:
    picture(tmp_path / "a.png")
    for data in (tmp_path, tmp_path / "a.png"):
        with pytest.raises(LoadError) as error:
            list(records(data, [spec(shape=shape)]))
        assert f"takes: {told} (and" in str(error.value.fix)


def test_pictures_of_another_size_are_told_the_right_one(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(LoadError) as error:
        list(records(Pictures(tmp_path, (8, 8)), [spec(shape=(1, 3, 32, 48))]))
    assert error.value.fix == "give --image-size 32x48 --layout nchw --channels rgb"
