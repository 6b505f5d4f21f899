"""Goals, and the search for the fewest float layers."""

from __future__ import annotations

import pytest

from onnxq.calibration.trials.sensitivity import FloatStep
from onnxq.errors import OptionError
from onnxq.workflows.quantizing.float_layers import TRIALS, Goal, TradeOff, _prefixes


def test_goals() -> None:
    assert not Goal().is_set
    assert Goal(count=2).is_set
    assert Goal(sqnr=0.0).is_set
    assert Goal(metric=lambda predict: 0.0, max_drop=0.0).is_set
    with pytest.raises(OptionError, match="belong together"):
        Goal(metric=lambda predict: 0.0)


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
