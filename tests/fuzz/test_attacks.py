"""A share of the attacks in every test run: no internal error, hang or wrong result among them."""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import FINDING, KINDS, Verdict, run

AT_ONCE = 250
COUNTS = {"models": 1000, "side-files": 500}
PARTS = [(kind, first) for kind in KINDS for first in range(0, COUNTS[kind], AT_ONCE)]


def judged(kind: str, seeds: range) -> list[Verdict]:
    found: list[Verdict] = []
    run([(kind, seed) for seed in seeds], found.append, processes=1)
    return found


@pytest.mark.parametrize(("kind", "first"), PARTS)
def test_broken_files_are_refused_or_handled_rightly(kind: str, first: int) -> None:
    found = judged(kind, range(first, first + AT_ONCE))
    assert len(found) == AT_ONCE
    assert [v.finding for v in found if v.outcome == FINDING] == []
    # An attack that never gets through, or always does, would find nothing.
    assert {v.outcome for v in found} == {"refused", "equal"}
