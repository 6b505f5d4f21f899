"""Files of a run that is not finished: found, checked, removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.errors import LoadError
from onnxq.observing.observe import Part, name_of_run
from onnxq.observing.progress_files import ProgressFiles
from onnxq.observing.statistics import Statistics
from onnxq.observing.tensor_statistics import Wanted

WANTED = {"x": Wanted()}
DATA = np.zeros((3, 2), np.float32)
PARTS = Part().divided(2)


def part() -> Statistics:
    made = Statistics.of("m", WANTED)
    made.tensors["x"].add(np.array([1.0, -2.0]))
    made.samples = 1
    return made


def test_a_part_is_kept_and_found_again(tmp_path: Path) -> None:
    files = ProgressFiles.beside(tmp_path / "all.stats")
    assert files.found() == []
    begun = Statistics.of("m", WANTED)
    assert files.load(PARTS[1], begun, DATA, None) is None
    files.save(PARTS[1], part(), DATA, None)
    assert [p.name for p in files.found()] == ["all.stats.partial-2-of-2"]
    assert Statistics.load(files.found()[0]).unfinished
    found = files.load(PARTS[1], begun, DATA, None)
    assert found is not None
    assert found.dumps() == part().dumps()


@pytest.mark.parametrize("what", ["model", "tensors", "most"])
def test_a_part_of_another_run_is_refused(what: str, tmp_path: Path) -> None:
    files = ProgressFiles.beside(tmp_path / "all.stats")
    files.save(PARTS[1], part(), DATA, None)
    begun, most = Statistics.of("m", WANTED), None
    if what == "model":
        begun.model = "n"
    elif what == "tensors":
        begun = Statistics.of("m", {"y": Wanted()})
    else:
        most = 1
    with pytest.raises(LoadError, match="partial-2-of-2"):
        files.load(PARTS[1], begun, DATA, most)


def test_files_of_a_run_that_was_divided_otherwise_are_refused(tmp_path: Path) -> None:
    files = ProgressFiles.beside(tmp_path / "all.stats")
    files.save(PARTS[0], part(), DATA, None)
    files.check(PARTS)
    for others in ((), Part().divided(4)):
        with pytest.raises(LoadError, match="another number of processes") as error:
            files.check(others)
        assert "--jobs" in error.value.fix


def test_only_its_own_files_are_removed(tmp_path: Path) -> None:
    files = ProgressFiles.beside(tmp_path / "all.stats")
    part().save(files.whole)
    files.save(PARTS[0], part(), DATA, None)
    others = {"all.stats", "all.stats.partial.bak", "ball.stats.partial", "all.stats.partial-1"}
    for name in others:
        (tmp_path / name).write_text("mine")
    files.remove()
    assert {p.name for p in tmp_path.iterdir()} == others
    ProgressFiles.beside(tmp_path / "none" / "all.stats").remove()


def test_a_part_that_was_only_begun_is_not_taken_for_one_that_is_done(tmp_path: Path) -> None:
    files = ProgressFiles.beside(tmp_path / "all.stats")
    half, begun = part(), Statistics.of("m", WANTED)
    half.unfinished = name_of_run(DATA, PARTS[1], None)
    half.save(files.of(PARTS[1]))
    assert files.load(PARTS[1], begun, DATA, None) is None
    with pytest.raises(LoadError, match="another run"):
        files.load(PARTS[1], begun, DATA, 5)
