"""A share of the attacks in every test run: no internal error, hang or wrong result among them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import campaign
from tests.fuzz.campaign import FINDING, Verdict, run
from tests.fuzz.outcome import Outcome

AT_ONCE = 250


def judged(kind: str, seeds: range) -> list[Verdict]:
    found: list[Verdict] = []
    run([(kind, seed) for seed in seeds], found.append, processes=1)
    return found


@pytest.mark.parametrize("first", range(0, 1000, AT_ONCE))
def test_broken_models_are_refused_or_handled_rightly(first: int) -> None:
    """1,000 models; side files are attacked in test_side_files.py."""
    found = judged("models", range(first, first + AT_ONCE))
    assert len(found) == AT_ONCE
    assert [v.finding for v in found if v.outcome == FINDING] == []
    # An attack that never gets through, or always does, would find nothing.
    assert {v.outcome for v in found} == {"refused", "equal"}


def attack(seed: int, folder: Path) -> Outcome:
    """What the campaign below runs: one attack for each way to end."""
    if seed == 1:
        raise AssertionError(f"seed {seed}: as asked")
    if seed == 2:
        time.sleep(60)
    if seed == 3:
        np.ones(1 << 29)
    if seed == 4:
        os._exit(7)
    return Outcome.EQUAL


def test_each_way_to_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SECONDS", 3.0)
    monkeypatch.setattr(campaign, "KINDS", {"these": __name__})
    found = judged("these", range(6))
    assert [v.outcome for v in found] == ["equal", *[FINDING] * 4, "equal"]
    parts = ("as asked", "no end", "MemoryError", "exit code 7")
    for verdict, part in zip(found[1:5], parts, strict=True):
        assert part in verdict.finding
