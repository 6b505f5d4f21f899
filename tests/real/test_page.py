"""The page of real networks is made from its numbers, and every network is in it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models import real_models
from tests.real import page

GOOD: dict[str, Any] = {
    "data": "20 drawn words",
    "proven": True,
    "sqnr": 30.0,
    "optimised": 29.5,
    "latency": 0.5,
    "told": False,
    "what": "words read",
    "before": "50 of 50",
    "after": "49 of 50",
    "kept": True,
}


def test_the_page_is_made_from_the_numbers() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text(page.read()), (
        "run 'python -m tests.real --page'"
    )


def test_numbers_are_of_networks_in_the_catalogue() -> None:
    assert set(page.read()) <= set(real_models.all_names())


def test_most_networks_are_quantized_and_others_have_a_reason() -> None:
    outcomes = [page.outcome(found) for found in page.read().values()]
    assert outcomes.count("done") >= page.SHARE * (len(outcomes) - outcomes.count("skipped"))


@pytest.mark.parametrize(
    ("change", "miss"),
    [
        ({}, []),
        ({"optimised": 28.5}, ["the optimised session is worse than the reference session"]),
        ({"optimised": "inf", "sqnr": "inf"}, []),
        ({"optimised": 61.0, "sqnr": 70.0}, []),
        (
            {"optimised": 59.0, "sqnr": 70.0},
            ["the optimised session is worse than the reference session"],
        ),
        ({"latency": 1.5, "told": True}, []),
        (
            {"latency": 1.5},
            ["it is slower than the float network, and the summary does not say so"],
        ),
        ({"proven": False}, ["its files are not proven"]),
        ({"kept": False}, ["words read: 50 of 50 before, 49 of 50 after"]),
    ],
)
def test_misses(change: dict[str, Any], miss: list[str]) -> None:
    assert page.misses(GOOD | change) == miss


def test_rows() -> None:
    text = page.text({"magika": GOOD, "vad": {"data": "x", "refused": "it is quantized already"}})
    row = "| magika | 20 drawn words | 30.0 | 29.5 | 0.50 | words read | 50 of 50 | 49 of 50 |"
    assert row in text
    assert "2 networks: 1 quantized, loaded and\nrun; 1 refused" in text
    assert "- `vad` refused: it is quantized already" in text
    assert "## Short of the goal" not in text
