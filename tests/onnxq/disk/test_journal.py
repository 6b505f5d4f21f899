from __future__ import annotations

from pathlib import Path

import pytest

from onnxq.disk.journal import OURS, Move, dumps, journal_name, read, stamp

TOKEN = "0123456789abcdef"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    moves = [
        Move(f".onnxq-{TOKEN}-0.new", "ü \n.onnx", (3, 10**18), (1, 2)),
        Move(f".onnxq-{TOKEN}-1.new", "b", (0, 1), None),
    ]
    path = tmp_path / journal_name(TOKEN)
    path.write_bytes(dumps(moves))
    assert read(path) == moves


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        (journal_name(TOKEN), True),
        (f".onnxq-{TOKEN}-12.new", True),
        (f".onnxq-{TOKEN}-1.old", True),
        (f".onnxq-{TOKEN}.old", False),
        (f".onnxq-{TOKEN}-1.journal", False),
        (f"x.onnxq-{TOKEN}-1.new", False),
        (f".onnxq-{TOKEN[1:]}-1.new", False),
        (f".onnxq-{TOKEN}-1.new\n", False),
    ],
)
def test_names(name: str, is_ours: bool) -> None:
    assert (OURS.fullmatch(name) is not None) == is_ours


def test_a_stamp_is_that_of_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("123")
    (tmp_path / "b").symlink_to("a")
    found = stamp(tmp_path / "b")
    assert found == stamp(tmp_path / "a")
    assert found is not None
    assert found[0] == 3
    assert stamp(tmp_path / "c") is None
