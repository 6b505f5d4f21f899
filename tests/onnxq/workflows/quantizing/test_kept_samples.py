"""The samples that are kept, and statistics that do not belong to a model."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.backend import chosen_backend
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.trials.trial import SAMPLES
from onnxq.errors import LoadError
from onnxq.graph import from_proto
from onnxq.observing.statistics import Statistics, fingerprint
from onnxq.workflows.quantizing.kept_samples import KeptSamples, statistics_for
from tests.models.networks import NETWORKS, samples


def test_the_first_samples_are_kept() -> None:
    kept = KeptSamples(3)
    for number in range(5):
        kept.add({"x": np.full(1, number)})
    assert [int(feed["x"][0]) for feed in kept.feeds] == [0, 1, 2]


def test_rounding_leaves_the_samples_of_the_trial_out_if_there_are_enough() -> None:
    kept = KeptSamples(100)
    for number in range(2 * SAMPLES - 1):
        kept.add({"x": np.full(1, number)})
    assert not kept.is_enough
    assert kept.for_rounding == kept.feeds
    kept.add({"x": np.zeros(1)})
    assert kept.is_enough
    assert kept.for_rounding == kept.feeds[SAMPLES:]


def test_statistics_must_cover_what_the_backend_wants() -> None:
    model, _ = float_form(from_proto(NETWORKS["conv1d"]()))
    backend = chosen_backend("onnxruntime", None)
    kept = KeptSamples(2)
    quiet = lambda text: None  # noqa: E731 - a function that does nothing
    found = statistics_for(Placing(model, backend), samples("conv1d"), None, None, quiet, kept)
    assert found.samples == 4
    assert len(kept.feeds) == 2
    empty = Statistics.of(fingerprint(model), {})
    with pytest.raises(LoadError, match=r"lack the tensor '.*' and \d+ more"):
        statistics_for(Placing(model, backend), None, empty, None, quiet, kept)
