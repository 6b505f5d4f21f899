"""Samples: the rule that splits data, random feeds, open dimensions, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

from onnxq.errors import LoadError, VerifyError
from onnxq.running import samples as sampling
from onnxq.running import sessions
from onnxq.running.ort_tensors import TensorSpec
from onnxq.running.samples import Feed, fill_dims, random_feed, samples

Shape = tuple[int | str | None, ...]


def spec(name: str, shape: Shape, dtype: object = np.float32) -> TensorSpec:
    return TensorSpec(name, shape, "tensor", np.dtype(dtype))


def session(text: str) -> sessions.Session:
    return sessions.reference(parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + text))


def arrays(inputs: list[TensorSpec], data: object) -> list[np.ndarray]:
    return [feed[inputs[0].name] for feed in samples(inputs, data)]


@pytest.mark.parametrize(
    ("wanted", "given", "made"),
    [
        ((1, 3, 4), (6, 3, 4), [(1, 3, 4)] * 6),
        (("N", 3, 4), (6, 3, 4), [(1, 3, 4)] * 6),
        ((None, 3, 4), (1, 3, 4), [(1, 3, 4)]),
        ((2, 3, 4), (6, 3, 4), [(2, 3, 4)] * 3),
        ((2, 3, 4), (2, 3, 4), [(2, 3, 4)]),
        ((2, 3, 4), (5, 2, 3, 4), [(2, 3, 4)] * 5),
        (("N", 3, 4), (5, 2, 3, 4), [(2, 3, 4)] * 5),
        ((1, 3, 4), (3, 4), [(1, 3, 4)]),
        (("N", 3, "T"), (3, 9), [(1, 3, 9)]),
        (("N",), (7,), [(7,)]),
        (("N",), (4, 7), [(7,)] * 4),
        ((), (), [()]),
    ],
)
@pytest.mark.parametrize("form", ["npz", "npy", "folder", "dict", "array", "iterable", "generator"])
def test_one_rule_splits_every_form_of_data(
    wanted: Shape, given: tuple[int, ...], made: list[tuple[int, ...]], form: str, tmp_path: Path
) -> None:
    array = np.arange(np.prod(given), dtype=np.float32).reshape(given)
    np.savez_compressed(tmp_path / "a.npz", x=array)
    np.save(tmp_path / "a.npy", array)
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "0.npy", array)
    data = {
        "npz": tmp_path / "a.npz",
        "npy": str(tmp_path / "a.npy"),
        "folder": folder,
        "dict": {"x": array},
        "array": array,
        "iterable": [{"x": array}],
        "generator": (a for a in [array]),
    }[form]
    got = arrays([spec("x", wanted)], data)
    assert [g.shape for g in got] == made
    np.testing.assert_array_equal(np.concatenate([g.ravel() for g in got]), array.ravel())


def test_a_folder_is_read_in_the_order_of_names_and_may_mix_forms(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.full((1, 2), 2, np.float32))
    np.savez(tmp_path / "a.npz", x=np.full((2, 2), 1, np.float32))
    (tmp_path / "labels.txt").write_text("not data")
    got = arrays([spec("x", (1, 2))], tmp_path)
    assert [g[0, 0] for g in got] == [1, 1, 2]


def test_several_inputs_share_one_file_and_single_samples_are_repeated(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.savez(tmp_path / "d.npz", x=x, flag=np.array(True), y=np.array(["ignored"], object))
    inputs = [spec("x", ("N", 2)), spec("flag", (), np.bool_)]
    feeds = list(samples(inputs, tmp_path / "d.npz"))
    assert [list(f) for f in feeds] == [["x", "flag"]] * 3
    assert all(bool(f["flag"]) for f in feeds)
    np.testing.assert_array_equal(np.concatenate([f["x"] for f in feeds]), x)


def test_the_only_array_serves_the_only_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", np.ones((2, 3), np.float32))
    assert len(arrays([spec("x", (1, 3))], tmp_path / "d.npz")) == 2


def test_iterables_are_consumed_one_sample_at_a_time() -> None:
    asked: list[int] = []

    def endless() -> Iterator[Feed]:
        while True:
            asked.append(len(asked))
            yield {"x": np.ones((1, 2), np.float32)}

    stream = samples([spec("x", (1, 2))], endless())
    next(stream)
    next(stream)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.float64, np.float32),
        (np.float32, np.float16),
        (np.float32, ml_dtypes.bfloat16),
        (np.uint8, np.float32),
        (np.int64, np.int32),
        (np.int64, np.bool_),
        (np.bool_, np.int64),
        (">f4", np.float32),
    ],
)
def test_types_that_keep_the_values_are_converted(given: object, wanted: object) -> None:
    array = np.array([[0, 1]]).astype(given)
    (got,) = arrays([spec("x", (1, 2), wanted)], array)
    assert got.dtype == np.dtype(wanted)
    np.testing.assert_array_equal(got.astype(float), [[0, 1]])


@pytest.mark.parametrize(
    ("values", "given", "wanted"),
    [
        ([0.5, 1.0], np.float32, np.int64),
        ([0.0, 1.0], np.float32, np.int64),
        ([1 << 40, 0], np.int64, np.int32),
        ([(1 << 24) + 1, 0], np.int64, np.float32),
        ([-1, 0], np.int8, np.uint8),
        ([1e300, 0], np.float64, np.float32),
        ([2, 0], np.int64, np.bool_),
        (["a", "b"], "U1", np.float32),
    ],
)
def test_types_that_change_the_values_are_refused(
    values: list[object], given: object, wanted: object
) -> None:
    with pytest.raises(LoadError, match=f"input 'x' cannot be converted to {np.dtype(wanted)}"):
        arrays([spec("x", (2,), wanted)], {"x": np.array(values).astype(given)})


def test_types_numpy_forgets_in_files_are_restored(tmp_path: Path) -> None:
    x = np.array([1, 2.5]).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    (got,) = arrays([spec("x", (2,), ml_dtypes.bfloat16)], tmp_path / "x.npy")
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [((2, 5), (1, 3)), ((3,), (2, 3)), ((5, 3), (2, 3)), ((2, 2, 1, 3), (1, 3)), ((0,), (2, 3))],
)
def test_a_wrong_shape_names_file_and_input(
    given: tuple[int, ...], wanted: Shape, tmp_path: Path
) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros(given, np.float32))
    with pytest.raises(LoadError, match=r"d\.npz.*input 'x' has shape"):
        arrays([spec("x", wanted)], tmp_path / "d.npz")


def test_what_is_missing_or_unreadable_is_named(tmp_path: Path) -> None:
    inputs = [spec("x", (1, 2)), spec("y", (1, 2))]
    one = np.ones((1, 2), np.float32)
    np.savez(tmp_path / "half.npz", x=one, z=one)
    np.save(tmp_path / "single.npy", one)
    np.save(tmp_path / "objects.npy", np.array([{}], object))
    (tmp_path / "bad.npz").write_bytes(b"PK no zip at all")
    np.savez_compressed(tmp_path / "cut.npz", x=np.random.default_rng(0).random((90, 2)), y=one)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:400])
    np.save(tmp_path / "short.npy", np.ones((9, 2), np.float32))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-4])
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.csv").write_text("1,2")
    for data, message in [
        (tmp_path / "half.npz", r"half\.npz.*no array for input 'y' \(found: x, z\)"),
        (tmp_path / "single.npy", r"single\.npy.*2 inputs: 'x', 'y'"),
        (tmp_path / "bad.npz", r"bad\.npz' cannot be read"),
        (tmp_path / "cut.npz", r"cut\.npz' cannot be read"),
        (tmp_path / "empty", r"empty' contains no \.npy or \.npz"),
        (tmp_path / "x.csv", r"x\.csv' is not a data file"),
        (tmp_path / "none.npz", r"none\.npz': no such file"),
        ({"x": one, "y": np.ones((3, 2, 1), np.float32)}, "input 'y' has shape"),
        ({"x": np.ones((2, 2), np.float32), "y": np.ones((3, 2), np.float32)}, "'x' 2, 'y' 3"),
        ([], "no samples"),
        ({"x": np.ones((0, 2), np.float32), "y": np.ones((0, 2), np.float32)}, "no samples"),
    ]:
        with pytest.raises(LoadError, match=message):
            list(samples(inputs, data))
    for file, message in [("objects", "Python objects"), ("short", "68 bytes follow")]:
        with pytest.raises(LoadError, match=rf"{file}\.npy.*{message}"):
            list(samples(inputs[:1], tmp_path / f"{file}.npy"))


def test_random_feeds_are_seeded_and_independent_of_their_number() -> None:
    inputs = [
        spec("f", (100,)),
        spec("h", (4,), ml_dtypes.bfloat16),
        spec("i", (100,), np.int64),
        spec("u", (1000,), np.uint8),
        spec("n", (1000,), ml_dtypes.int4),
        spec("b", (100,), np.bool_),
    ]
    many, few = list(samples(inputs, count=3)), list(samples(inputs, count=2))
    for left, right in zip(many, few, strict=False):
        for name in left:
            np.testing.assert_array_equal(left[name], right[name])
    assert not np.array_equal(many[0]["f"], many[1]["f"])
    assert not np.array_equal(random_feed(inputs, seed=1)["f"], many[0]["f"])
    first = many[0]
    assert [first[i.name].dtype for i in inputs] == [i.dtype for i in inputs]
    assert abs(float(first["f"].std()) - 1) < 0.3
    assert set(first["i"].tolist()) == {0, 1}
    assert (first["u"].min(), first["u"].max()) == (0, 255)
    assert (int(first["n"].min()), int(first["n"].max())) == (0, 7)


def test_no_random_string_is_invented() -> None:
    with pytest.raises(VerifyError, match="input 's'"):
        random_feed([TensorSpec("s", (2,), "tensor(string)", np.dtype(object))])


def test_static_inputs_are_left_alone() -> None:
    run = session("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    assert fill_dims(run) is run.inputs


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        # the batch is 1, other dimensions take the smallest size
        ("g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }", [(1, 3, 8, 8)]),
        # one symbol has one size, wherever it stands
        (
            "g (float[N, T] x, float[T, N] z) => (float[N, N] y) { y = MatMul(x, z) }",
            [(1, 8), (8, 1)],
        ),
        # a kernel of 20 x 20 needs 32
        (
            """g (float[N, 1, H, W] x) => (float[N, 1, h, w] y) <int64[4] s = {1, 1, 20, 20}> {
               k = ConstantOfShape(s)  y = Conv(x, k) }""",
            [(1, 1, 32, 32)],
        ),
        # 8 runs, but returns nothing
        (
            """g (float[N, T] x) => (float[N, t] y)
               <int64[1] a = {10}, int64[1] b = {99}, int64[1] axis = {1}> {
               y = Slice(x, a, b, axis) }""",
            [(1, 16)],
        ),
        # always NaN: the smallest size is as good as any
        ("g (float[N, T] x) => (float[N, T] y) { z = Sub(x, x)  y = Div(z, z) }", [(1, 8)]),
        # a hidden size: only 64 fits the weight
        (
            """g (float[?, K] x) => (float[a, b] y) <int64[2] s = {64, 1}> {
               one = ConstantOfShape(s)  y = MatMul(x, one) }""",
            [(1, 64)],
        ),
        # what looks like a batch is none: 16 rows
        (
            """g (float[R, 4] x) => (float[a, b] y) <int64[2] s = {1, 16}> {
               one = ConstantOfShape(s)  y = MatMul(one, x) }""",
            [(16, 4)],
        ),
    ],
)
def test_open_dimensions_get_the_first_sizes_that_run(
    text: str, shapes: list[tuple[int, ...]]
) -> None:
    run = session(text)
    assert [i.shape for i in fill_dims(run)] == shapes
    for feed in samples(run, count=2):
        assert [a.shape for a in feed.values()] == shapes
        run.run(feed)


def test_if_no_size_fits_the_inputs_and_the_reason_are_named() -> None:
    run = session(
        """g (float[N, K] x) => (float[a, b] y) <int64[2] s = {7, 1}> {
           one = ConstantOfShape(s)  [bad] y = MatMul(x, one) }"""
    )
    with pytest.raises(VerifyError, match=r"'x' float32\[N, K\].*bad"):
        list(samples(run))


@pytest.mark.parametrize("kind", ["complex64", "datetime64[s]", "S4", "float64"])
def test_a_type_that_cannot_be_is_refused_before_values_are_read(kind: str) -> None:
    spec = TensorSpec("x", (1, 2), "tensor(int64)", np.dtype(np.int64))
    with pytest.raises(LoadError, match=r"cannot be converted to int64\n"):
        list(samples([spec], {"x": np.zeros((1, 2), kind)}))


@pytest.mark.parametrize(
    ("fixed", "shape"),
    [
        ("64,64", (1, 8, 64, 64)),
        ("512,1024", (1, 2, 512, 1024)),
        ("1024,4096", (1, 1, 1024, 4096)),
    ],
)
def test_large_fixed_dimensions_make_open_ones_small(fixed: str, shape: Shape) -> None:
    run = session(f"g (float[N,C,{fixed}] x) => (float[N,C,{fixed}] y) {{ y = Relu(x) }}")
    assert [i.shape for i in fill_dims(run)] == [shape]


def test_sizes_that_no_machine_holds_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_VALUES", 10_000)
    run = session(
        """g (float[N,C,64] x) => (float[1,33,64] y) <int64[3] s = {1, 33, 64}> {
           y = Reshape(x, s) }"""
    )
    fed: list[int] = []

    def refuse(feed: Feed, only: object = None) -> None:
        fed.append(sum(value.size for value in feed.values()))
        raise VerifyError("it does not run", fix="")

    monkeypatch.setattr(run, "run", refuse)
    with pytest.raises(VerifyError, match="found no input sizes with which the model runs"):
        fill_dims(run)
    assert len(fed) > 5
    assert max(fed) <= 10_000


@pytest.mark.parametrize(
    ("shape", "given", "advice"),
    [
        (("N", 3, 8, 9), (64, 8, 9, 3), "numpy.moveaxis(x, -1, 1)"),
        (("N", 3, 8, 9), (8, 9, 3), "numpy.moveaxis(x, -1, 0)"),
        ((1, 3, 8, 9), (64, 1, 8, 9, 3), "numpy.moveaxis(x, -1, 2)"),
        (("N", 8, 9, 3), (64, 3, 8, 9), "numpy.moveaxis(x, 1, -1)"),
        (("N", 3, 8, 9), (64, 3, 8, 7), "may count any number of samples"),
        ((2, 3, 8, 9), (5, 3, 8, 9), "one more leading axis"),
    ],
)
def test_advice_for_a_wrong_shape(
    shape: tuple[int | str, ...], given: tuple[int, ...], advice: str
) -> None:
    spec = TensorSpec("x", shape, "tensor", np.dtype(np.float32))
    with pytest.raises(LoadError) as caught:
        list(samples([spec], {"x": np.zeros(given, np.float32)}))
    assert advice in caught.value.fix
