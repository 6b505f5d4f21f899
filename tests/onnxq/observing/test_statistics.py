"""Statistics of a model: files that are equal byte for byte, merging, and broken files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError
from onnxq.graph import Model
from onnxq.observing.statistics import VERSION, Statistics, fingerprint, merged
from onnxq.observing.tensor_statistics import Wanted
from tests.models.build import parse, tensor

WANTED = {
    "ß": Wanted(channels=1, spread=True),
    "a": Wanted(rows=-1),
    "never": Wanted(distribution=False),
}
SAMPLES = [
    np.random.default_rng(n).normal(size=(1, 3, 5)).astype(np.float32) * 10.0 ** (n - 3)
    for n in range(8)
]


def taken(numbers: list[int]) -> Statistics:
    made = Statistics.of("m", WANTED)
    for number in numbers:
        made.tensors["ß"].add(SAMPLES[number])
        made.tensors["a"].add(-SAMPLES[number])
        made.samples += 1
    return made


WHOLE = taken(list(range(8))).dumps()


@given(st.permutations(range(8)), st.lists(st.integers(0, 8), max_size=4), st.randoms())
def test_any_division_in_any_order_is_one_run_byte_for_byte(
    order: list[int], cuts: list[int], random: object
) -> None:
    edges = [0, *sorted(cuts), 8]
    parts = [taken(order[a:b]) for a, b in itertools.pairwise(edges)]
    random.shuffle(parts)  # type: ignore[attr-defined]
    assert merged(parts).dumps() == WHOLE
    assert merged(Statistics.loads(part.dumps()) for part in parts).dumps() == WHOLE


def test_a_merge_leaves_its_parts_as_they_were() -> None:
    parts = [taken([0, 1]), taken([2])]
    before = [part.dumps() for part in parts]
    merged(parts)
    assert [part.dumps() for part in parts] == before


def test_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.stats"
    taken(list(range(8))).save(path)
    assert path.read_bytes() == WHOLE
    read = Statistics.load(path)
    assert read.dumps() == WHOLE
    assert (read.wanted, read.samples) == (WANTED, 8)
    assert read.tensors["never"].is_empty


def test_no_parts_and_parts_of_different_models_are_errors() -> None:
    with pytest.raises(LoadError, match="no statistics to merge"):
        merged([])
    other = taken([0])
    other.model = "n"
    with pytest.raises(LoadError, match="different models"):
        merged([taken([0]), other])
    less = Statistics.of("m", {"a": Wanted()})
    with pytest.raises(LoadError, match="different tensors"):
        merged([taken([0]), less])


def test_a_run_that_is_not_finished_is_not_merged() -> None:
    part = taken([0])
    part.unfinished = "part 1/2"
    read = Statistics.loads(part.dumps())
    assert read.unfinished == "part 1/2"
    with pytest.raises(LoadError, match="not finished") as error:
        merged([taken([1]), read])
    assert "--resume" in error.value.fix


def _arrays(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(WHOLE)
        with np.load(path) as found:
            arrays = dict(found)
        change(arrays)
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)

    return write


def _header(**changes: object) -> Callable[[Path], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        header = json.loads(arrays["header"].tobytes()) | changes
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return _arrays(change)


BROKEN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(WHOLE[: len(WHOLE) // 2]),
    "no archive": lambda path: path.write_bytes(b"hello"),
    "no header": _arrays(lambda a: a.pop("header")),
    "a missing array": _arrays(lambda a: a.pop("0.counts")),
    "counts of text": _arrays(lambda a: a.update({"0.counts": np.array("x")})),
    "counts of rank 2": _arrays(lambda a: a.update({"0.counts": np.zeros((2, 2), np.int64)})),
    "limbs of another shape": _arrays(lambda a: a.update({"1.limbs": np.zeros(3, np.int64)})),
    "three extremes": _arrays(lambda a: a.update({"0.extremes": np.zeros(3, np.float32)})),
    "negative counts": _arrays(lambda a: a.update({"0.counts": -a["0.counts"]})),
    "extremes that are NaN": _arrays(lambda a: a.update({"0.extremes": a["0.extremes"] * np.nan})),
    "a negative number of samples": _header(samples=-1),
    "a negative number of extremes": _arrays(lambda a: a.update({"0.samples": np.array(-1)})),
    "an unknown number": _arrays(lambda a: a.update({"x.counts": np.zeros(1)})),
    "header of another kind": _header(onnxq="table"),
    "another version": _header(version=VERSION + 1),
    "samples of text": _header(samples="many"),
    "tensors without names": _header(tensors=[{}]),
    "tensors that are no list": _header(tensors=3),
    "an unknown key": _header(more=1),
    "header of no text": _arrays(lambda a: a.update({"header": np.array([255, 1], np.uint8)})),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_one_error_that_names_it(how: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.stats"
    BROKEN[how](path)
    with pytest.raises(LoadError) as error:
        Statistics.load(path)
    assert str(path) in error.value.what
    assert "onnxq calibrate" in error.value.fix


@pytest.mark.parametrize("at", range(40, len(WHOLE), 997))
def test_a_flipped_byte_is_an_error_or_changes_nothing(at: int, tmp_path: Path) -> None:
    path = tmp_path / "broken.stats"
    damaged = bytearray(WHOLE)
    damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    try:
        assert Statistics.load(path).dumps() == WHOLE
    except LoadError as error:
        assert str(path) in error.what  # noqa: PT017 - either is right


def test_bytes_that_are_no_statistics() -> None:
    for data in (b"", b"hello", WHOLE[:500]):
        with pytest.raises(LoadError, match="not statistics"):
            Statistics.loads(data)


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"none\.stats"):
        Statistics.load(tmp_path / "none.stats")


BODY = """g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1, 2, 3, 4}>
{ h = MatMul(x, w)  y = Elu <alpha = 1.5> (h) }"""


def changed(old: str, new: str) -> Model:
    assert old in BODY
    return parse(BODY.replace(old, new))


def test_the_fingerprint_differs_with_anything_that_is_computed() -> None:
    same = fingerprint(parse(BODY))
    assert fingerprint(parse(BODY)) == same
    others = [
        changed("3, 4}", "3, 5}"),
        changed("alpha = 1.5", "alpha = 1.25"),
        changed("Elu <alpha = 1.5>", "Relu"),
        changed("(h)", "(x)"),
    ]
    assert len({same, *map(fingerprint, others)}) == 5
    assert tensor(parse(BODY), "h").name == "h"


def test_the_fingerprint_sees_weights_in_bodies() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
      y = If (c) <
        then_branch = t () => (float[2] a) { k = Constant <value = float[2] {1, VALUE}> ()
                                             a = Add(x, k) },
        else_branch = e () => (float[2] b) { b = Relu(x) }>
    }"""
    one, two = (fingerprint(parse(text.replace("VALUE", v))) for v in ("2", "3"))
    assert one != two
