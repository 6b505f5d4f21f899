"""The data of a quantization: statistics of all samples, and the first samples themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxq.calibration.placing import Placing
from onnxq.calibration.trials.trial import SAMPLES
from onnxq.calibration.wanted import wanted
from onnxq.errors import LoadError
from onnxq.observing.observe import observe
from onnxq.observing.statistics import Statistics, fingerprint
from onnxq.observing.tensor_statistics import Wanted
from onnxq.running.samples import samples as feeds_of
from onnxq.running.sessions import reference

if TYPE_CHECKING:
    from onnxq.running.samples import Data, Feed


@dataclass
class KeptSamples:
    """The first samples of the data: as many as are needed for more than ranges."""

    most: int
    feeds: list[Feed] = field(default_factory=list)

    def add(self, feed: Feed) -> None:
        """Keep a sample if it is one of the first."""
        if len(self.feeds) < self.most:
            self.feeds.append(feed)

    @property
    def is_enough(self) -> bool:
        """Whether GPTQ can do without the samples that the cost is measured on."""
        return len(self.feeds) >= 2 * SAMPLES

    @property
    def for_rounding(self) -> list[Feed]:
        """Samples for GPTQ: on what it has seen, rounded weights look better than they are."""
        return self.feeds[SAMPLES:] if self.is_enough else self.feeds


def statistics_for(
    placing: Placing,
    data: Data,
    given: Statistics | str | Path | None,
    most: int | None,
    progress: Callable[[str], None],
    kept: KeptSamples,
    *,
    distribution: bool = True,
    channels: bool = True,
) -> Statistics:
    """What is known of the tensors; the first samples are added to `kept`.

    Without `distribution` and `channels` only what extremes need is observed, which is cheaper.
    """
    # Rules may need other methods, but not other tensors than those of the whole network do.
    model, backend = placing.model, placing.backend
    whole = Placing(model, backend) if placing.settings.rules else placing
    asked: dict[str, Wanted] = {}
    if whole.places:  # float activations have no ranges
        asked = wanted(whole, distribution=distribution, channels=channels)
    if given is None and data is None and not asked:
        return Statistics.of("", asked)
    if given is None:
        return observe(
            model, asked, data, most=most, of_model=False, progress=progress, watch=kept.add
        )
    found = given if isinstance(given, Statistics) else Statistics.load(Path(given))
    if found.model != fingerprint(model):
        raise LoadError(
            "the statistics are of another model",
            fix="run 'onnxq calibrate' with this model",
        )
    missing = sorted(set(asked) - set(found.tensors))
    if missing:
        many = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise LoadError(
            f"the statistics lack the tensor '{missing[0]}'{many}",
            fix=f"run 'onnxq calibrate' with --backend {backend.name}",
        )
    if data is not None:
        for feed in itertools.islice(feeds_of(reference(model), data), kept.most):
            kept.add(feed)
    return found
