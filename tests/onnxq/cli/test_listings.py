"""Listings: a line for each entry, all about one of them by its name."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console, RenderableType

from onnxq.backend import Backend, find_backend
from onnxq.cli import listings
from onnxq.discovery import Broken
from passes.to_qdq import ToQdq
from tests.onnxq.conftest import Run

COMMANDS = ("passes", "backends", "formats")


def text(view: RenderableType, width: int = 200) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(view)
    return out.getvalue()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_listing_has_one_line_for_each_entry(onnxq: Run, command: str) -> None:
    code, out, _ = onnxq(command)
    assert code == 0
    entries = json.loads(onnxq(command, "--json")[1])
    lines = out.splitlines()
    assert len(lines) == len(entries) + 1  # and how to see one in full
    for entry, line in zip(entries, lines, strict=False):
        assert line.split(maxsplit=1)[0] == entry["name"]
        assert entry["summary"] in line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_entry_is_shown_in_full(onnxq: Run, command: str) -> None:
    for entry in json.loads(onnxq(command, "--json")[1]):
        assert json.loads(onnxq(command, entry["name"], "--json")[1]) == entry
        code, out, _ = onnxq(command, entry["name"])
        assert (code, out.split()[0]) == (0, entry["name"])
        assert set(entry["summary"].split()) <= set(out.split())


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        ("passes", "to-qdg", "to-qdq"),
        ("backends", "onxruntime", "onnxruntime"),
        ("formats", "aimet-1.0", "aimet-1.0.0"),
    ],
)
def test_an_unknown_name_is_told_with_near_ones(
    onnxq: Run, command: str, wrong: str, right: str
) -> None:
    code, out, err = onnxq(command, wrong)
    assert (code, out) == (2, "")
    assert f"'{wrong}'" in err
    assert f"'{right}'" in err


def test_long_summaries_are_cut_not_folded() -> None:
    shown = text(listings.listing({"a": "x" * 300, "b": "short"}, "passes"), width=60)
    assert len(shown.splitlines()) == 3
    assert "\N{HORIZONTAL ELLIPSIS}" in shown


def test_broken_plug_ins_are_shown() -> None:
    broken = Broken("zzz", "ImportError: no module", "someone")
    shown = text(listings.listing({"a": "works", "zzz": broken}, "backends"))
    assert "broken plug-in: ImportError: no module" in shown


def test_backends_without_a_writer_say_so() -> None:
    chip = Backend("chip", "a chip", find_backend("onnxruntime").scheme)
    shown = text(listings.in_full("chip", listings.backend_rows(chip)))
    assert "none: no writer yet" in shown
    assert "training only" in shown


def test_a_backend_in_full_lists_variants_and_limits() -> None:
    shown = text(listings.in_full("x", listings.backend_rows(find_backend("onnxruntime"))))
    assert "integer operators instead of QDQ" in shown
    assert "<stem>_qoperator.onnx" in shown
    shown = text(listings.in_full("x", listings.pass_rows(ToQdq)))
    assert "weights=stored  (stored|float)" in shown
