"""Which inputs models are measured with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.errors import LoadError, VerifyError
from onnxq.timing import feeding
from onnxq.timing.feeding import MOST_SAMPLES, feed_all
from tests.onnxq.timing.fake_child import contender


def relu(shape: str, name: str = "x") -> str:
    return f"g (float[{shape}] {name}) => (float[{shape}] y) {{ y = Relu({name}) }}"


def rows_of(size: int) -> str:
    """A model that runs if the number of values is a multiple of `size`."""
    return f"""g (float[1, N] x) => (float[A, {size}] y) <int64[2] s = {{-1, {size}}}> {{
        y = Reshape(x, s)
    }}"""


def test_all_models_get_the_same_values(tmp_path: Path) -> None:
    both = [contender(name, relu("N, 3"), tmp_path) for name in "ab"]
    feed_all(both, None, seed=5)
    first, second = (c.child.worker._feeds for c in both)  # type: ignore[attr-defined]
    assert np.array_equal(first[0]["x"], second[0]["x"])
    assert not any(c.own_inputs or c.notes for c in both)


def test_a_model_that_cannot_run_the_sizes_of_the_first_gets_its_own(tmp_path: Path) -> None:
    both = [contender("a", relu("1, N"), tmp_path), contender("b", rows_of(16), tmp_path)]
    feed_all(both, None, seed=0)
    assert [c.taken for c in both] == [("x float32[1, 8]",), ("x float32[1, 16]",)]
    assert [c.own_inputs for c in both] == [False, True]
    (note,) = both[1].notes
    assert note.startswith("b has inputs of its own: it does not run with those of a: ")


def test_no_size_fits(tmp_path: Path) -> None:
    one = contender("a", rows_of(12), tmp_path)  # no size of the ladder is a multiple of 12
    with pytest.raises(VerifyError, match="no input sizes") as error:
        feed_all([one], None, seed=0)
    assert error.value.__notes__ == ["for a"]


def test_another_group_is_told_once(tmp_path: Path) -> None:
    three = [
        contender(name, relu(shape), tmp_path)
        for name, shape in (("a", "1, 3"), ("b", "1, 4"), ("c", "1, 4"))
    ]
    feed_all(three, None, seed=0)
    assert three[1].notes == ["b has inputs of its own: they differ from those of a"]
    assert three[2].notes == ["c has inputs of its own: they differ from those of a"]


@pytest.mark.parametrize("dies_in", ["fill", "take"])
def test_one_that_dies_leaves_the_inputs_to_the_next(tmp_path: Path, dies_in: str) -> None:
    bad = contender("a", relu("N, 3"), tmp_path, dies_in)
    good = contender("b", relu("N, 3"), tmp_path)
    feed_all([bad, good], None, seed=0)
    assert bad.failure == f"SIGABRT in {dies_in}"
    assert (good.taken, good.own_inputs) == (("x float32[1, 3]",), False)


def test_the_first_samples_of_data_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = contender("a", relu("N, 3"), tmp_path)
    data = {"x": np.arange(120, dtype=np.float32).reshape(40, 3)}
    feed_all([one], data, seed=0)
    feeds = one.child.worker._feeds  # type: ignore[attr-defined]
    assert len(feeds) == MOST_SAMPLES
    assert feeds[1]["x"].tolist() == [[3, 4, 5]]
    monkeypatch.setattr(feeding, "_MOST_BYTES", 30)
    feed_all([one], data, seed=0)
    assert len(one.child.worker._feeds) == 3  # type: ignore[attr-defined]


def test_data_that_does_not_fit_names_the_model(tmp_path: Path) -> None:
    both = [contender("a", relu("N, 3"), tmp_path), contender("b", relu("N, 4"), tmp_path)]
    with pytest.raises(LoadError, match="but the input is") as error:
        feed_all(both, {"x": np.ones((2, 3), np.float32)}, seed=0)
    assert error.value.__notes__ == ["for b"]
