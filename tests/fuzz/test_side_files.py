"""Every format is attacked in every test run; the fuzzer itself finds what it is there to find."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onnxq.quant.qparam_table import QParamTable
from onnxq.side_files.side_file import SideFile, find_format, formats
from tests.fuzz import side_files
from tests.fuzz.outcome import Outcome
from tests.fuzz.side_facts import disagreement, facts_of
from tests.fuzz.side_mutations import dumped

TIMES = 24


def test_every_format_of_onnxq_has_a_sound_file() -> None:
    ours = [f.name for f in formats().values() if isinstance(f, SideFile)]
    assert {name for name in ours if not name.startswith("example")} <= side_files.TABLES.keys()
    for name in side_files.TABLES:
        said = facts_of(name, side_files.sound(name))
        assert said
        assert disagreement(said, said) == ""


@pytest.mark.parametrize("name", side_files.subjects())
def test_a_broken_file_is_refused_or_read_as_what_it_says(name: str, tmp_path: Path) -> None:
    count = Counter(side_files.attack_with(name, seed, tmp_path) for seed in range(TIMES))
    assert count[Outcome.REFUSED] > 0, "an attack that always gets through breaks nothing"
    assert count.total() == TIMES


def test_a_seed_gives_one_attack(tmp_path: Path) -> None:
    made = []
    for _ in range(2):
        side_files.attack(7, tmp_path)
        made.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (
            lambda right: lambda text, model: QParamTable(right(text, model).rows[1:]),
            "another one|is lost",
        ),
        (lambda right: lambda text, model: 1 / 0, "ZeroDivisionError"),
        (
            lambda right: (
                lambda text, model: QParamTable(
                    [row.with_(scale=row.scale * 2) for row in right(text, model)]
                )
            ),
            "another one|was .* and is|does not have",
        ),
    ],
    ids=["forgets", "breaks", "doubles"],
)
def test_a_bad_reader_is_found(
    read: Any, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = find_format("mqbench-vitis")
    wrong = SideFile(
        right.name, "", right.write, read(right.read), right.recognises, right.detection
    )
    for module in ("side_files.side_file", "workflows.encodings"):
        monkeypatch.setattr(f"onnxq.{module}.formats", lambda: {right.name: wrong})
    monkeypatch.setattr(side_files, "broken", lambda name, random: side_files.sound(name).encode())
    with pytest.raises(AssertionError, match=rf"seed 3 \(mqbench-vitis\): .*({why})"):
        side_files.attack_with(right.name, 3, tmp_path)


def test_a_key_means_the_same_in_quotes() -> None:
    text = side_files.sound("rknn-hybrid")
    assert isinstance(text, str)
    said = facts_of("rknn-hybrid", text.replace("mat.w:", "ma|t's w:"))
    assert disagreement(said, facts_of("rknn-hybrid", text.replace("mat.w:", "'ma|t''s w':"))) == ""
    assert "is lost" in disagreement(said, facts_of("rknn-hybrid", text))


def test_keys_may_stand_twice_in_what_is_made() -> None:
    assert dumped((("a", 1), ("a", [None]))) == '{"a": 1,\n "a": [null]}'
    breaks = {side_files.broken("onnxq", Random(seed)) for seed in range(50)}
    assert len(breaks) > 45
