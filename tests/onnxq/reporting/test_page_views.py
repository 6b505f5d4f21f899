"""Numbers and names as the page shows them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from onnxq.reporting import page_views as views
from tests.models.reported import contents


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((None, "–"), (0.0, "0 %"), (1e-6, "< 0.01 %"), (0.00234, "0.23 %"), (0.126, "13 %")),
        *((0.9999, "> 99.9 %"), (1.0, "100 %")),
    ],
)
def test_shares(share: float | None, text: str) -> None:
    assert views.percent(share) == text


def test_ratios_and_numbers() -> None:
    assert [views.decibels(v) for v in (None, math.nan, math.inf, -math.inf, -1.25, 30.04)] == [
        *("–", "–", "exact", "−∞ dB", "−1.2 dB", "30.0 dB"),
    ]
    assert [views.number(v) for v in (None, 0.0, math.inf, -1234.5)] == ["–", "0", "∞", "−1.23e+03"]
    assert [views.size(v) for v in (None, 12, 1234, 5_600_000, 2**31)] == [
        *("–", "12 B", "1.23 kB", "5.6 MB", "2.15 GB"),
    ]


def test_grades() -> None:
    assert [views.grade(v) for v in (None, math.nan, 5.0, 25.0, 35.0, math.inf)] == [
        *("", "", "poor", "fair", "good", "good"),
    ]


def test_signs_that_cannot_be_seen_are_shown() -> None:
    assert views.visible("a\u202eb\x00c\nd é") == "a\ufffdb\ufffdc\nd é"


def test_the_worst_layers_come_first() -> None:
    rows = views.worst_first(contents().layers)
    ratios = [layer.sqnr for _, layer in rows]
    assert ratios == sorted(ratios)  # type: ignore[type-var]
    assert all(contents().layers[at] is layer for at, layer in rows)


def test_float_layers_go_by_reason_the_largest_first() -> None:
    found = contents()
    reasons = {"classifier": "small", "pointwise": "small", "block.conv1": "large", "pool": "none"}
    layers = tuple(
        replace(x, fate=replace(x.fate, precision="float", rule=reasons[x.name]))
        if x.name in reasons
        else x
        for x in found.layers
    )
    rows = views.in_float(replace(found, layers=layers))
    assert [layer.name for _, layer in rows] == ["block.conv1", "pointwise", "classifier", "pool"]


def test_hints_complete_the_command() -> None:
    found = contents()
    assert "--against FLOAT.onnx" in views.hint(found, "both")
    assert "--bench 2" in views.hint(found, "bench")
    alone = replace(found, names=replace(found.names, source=found.names.model))
    assert views.is_float(alone)
    assert views.hint(alone, "against").startswith("onnxq quantize")


def test_what_scripts_draw_is_plain_json() -> None:
    drawn = json.loads(json.dumps(views.drawn(contents()), allow_nan=False))
    count = len(contents().layers)
    columns = {key: len(value) for key, value in drawn["layers"].items() if key != "rescaled"}
    assert set(columns.values()) == {count}
    assert len(drawn["distributions"]) == len(contents().distributions)
    assert drawn["commands"]["explain"].endswith(" TENSOR")
