"""Goals, and the search for the fewest float layers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from onnxq.calibration.trials.sensitivity import FloatStep
from onnxq.errors import OptionError
from onnxq.graph import from_proto
from onnxq.workflows.quantize import quantize
from onnxq.workflows.quantizing.float_layers import TRIALS, Goal, TradeOff, _prefixes
from tests.models.networks import NETWORKS, samples


def test_goals() -> None:
    assert not Goal().is_set
    assert Goal(count=2).is_set
    assert Goal(sqnr=0.5).is_set
    assert Goal(metric=lambda predict: 0.0, max_drop=0.0).is_set
    with pytest.raises(OptionError, match="belong together"):
        Goal(metric=lambda predict: 0.0)
    with pytest.raises(OptionError, match="the target SQNR is not a number"):
        Goal(sqnr=float("nan"))
    with pytest.raises(OptionError, match="the largest drop is not a number"):
        Goal(metric=lambda predict: 0.0, max_drop=float("nan"))
    for nothing in (0.0, -5.0):
        with pytest.raises(OptionError, match="is no goal"):
            Goal(sqnr=nothing)


@pytest.mark.parametrize(
    ("goal", "fix"),
    [({"keep_float": 1000}, r"keep \d+ or fewer"), ({"target_sqnr": 130.0}, "lower")],
)
def test_a_goal_that_leaves_nothing_to_quantize_is_told(goal: Any, fix: str) -> None:
    network, data = from_proto(NETWORKS["conv1d"]()), samples("conv1d", 4)
    with pytest.raises(OptionError, match="nothing is left to quantize") as caught:
        quantize(network, "onnxruntime", data, method="min-max", **goal)
    assert re.search(fix, caught.value.fix)


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        (
            lambda predict: {}["hm"],
            r"the metric failed at .*test_float_layers\.py, line \d+: KeyError: 'hm'",
        ),
        (lambda predict: "good", "the metric failed: ValueError"),
        (lambda predict: float("nan"), "the metric is not a number"),
    ],
)
def test_a_metric_that_fails_is_no_fault_of_onnxq(metric: Any, why: str) -> None:
    network, data = from_proto(NETWORKS["conv1d"]()), samples("conv1d", 4)
    with pytest.raises(OptionError, match=why) as caught:
        quantize(network, "tensorrt", data, method="min-max", metric=metric, max_drop=0.1)
    assert "return one number" in (caught.value.fix or "")


def test_the_longest_prefix_is_tried_and_never_too_many() -> None:
    steps = [FloatStep(("a", "b"), 0.5), FloatStep(("c",), 0.3), FloatStep(("d", "b"), 0.1)]
    assert _prefixes(steps, 1) == [("c",)]
    assert _prefixes(steps, 3) == [("a", "b"), ("a", "b", "c")]
    assert _prefixes(steps, 9)[-1] == ("a", "b", "c", "d")
    many = [FloatStep((str(i),), 0.0) for i in range(100)]
    tried = _prefixes(many, 50)
    assert len(tried) <= TRIALS
    assert len(tried[-1]) == 50


def test_what_a_trial_says() -> None:
    assert TradeOff((), 12.34, None, False).text == "the SQNR is 12.3 dB"
    assert TradeOff((), 12.34, 0.875, True).text == "the metric is 0.875"
    assert TradeOff(("a",), float("inf"), None, True).to_json() == {
        "float_layers": ["a"],
        "sqnr": None,
        "metric": None,
        "reached": True,
    }
