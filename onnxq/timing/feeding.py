"""The inputs of a comparison: the same for all models that have the same (see `shared_inputs`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from onnxq.errors import OnnxqError, VerifyError
from onnxq.running.ort_tensors import TensorSpec
from onnxq.running.samples import Data, Feed, random_feed, samples
from onnxq.timing.contender import Contender
from onnxq.timing.shared_inputs import Group, group

MOST_SAMPLES = 16
_MOST_BYTES = 1 << 28


def feed_all(contenders: Sequence[Contender], data: Data, seed: int) -> None:
    """Give all models their inputs."""
    groups = group((n, e.inputs) for n, e in enumerate(contenders) if not e.failure)
    for members in groups:
        _feed(contenders, members, data, seed)
        for contender in (contenders[n] for n in members.members):
            if members is not groups[0] and not contender.own_inputs:
                first = contenders[groups[0].members[0]].label
                _say_own(contender, f"they differ from those of {first}")


def _feed(contenders: Sequence[Contender], members: Group, data: Data, seed: int) -> None:
    """Give the models of a group the same inputs; those that cannot run them get their own."""
    maker: Contender | None = None
    feeds: list[Feed] = []
    for contender in (contenders[n] for n in members.members):
        with contender.dying():
            if maker is None:
                feeds = _feeds(contender, members.inputs, data, seed)
                maker = contender
            try:
                contender.take(feeds)
            except VerifyError as refused:
                if contender is maker or data is not None:
                    raise
                contender.take(_feeds(contender, contender.inputs, data, seed))
                _say_own(contender, f"it does not run with those of {maker.label}: {refused.what}")


def _say_own(contender: Contender, why: str) -> None:
    contender.own_inputs = True
    contender.notes.append(f"{contender.label} has inputs of its own: {why}")


def _feeds(
    contender: Contender, inputs: tuple[TensorSpec, ...], data: Data, seed: int
) -> list[Feed]:
    """One random sample, or the first ones of the data."""
    try:
        if data is None:
            return [random_feed(contender.child.ask("fill", inputs, seed), seed)]
        feeds: list[Feed] = []
        for feed in itertools.islice(samples(inputs, data), MOST_SAMPLES):
            feeds.append(feed)
            if sum(value.nbytes for f in feeds for value in f.values()) > _MOST_BYTES:
                break
        return feeds
    except OnnxqError as error:
        error.add_note(f"for {contender.label}")
        raise
