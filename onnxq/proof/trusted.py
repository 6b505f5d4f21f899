"""Models in onnxruntime sessions, opened once for all comparisons that use them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property

import onnx

from onnxq.errors import OptionError
from onnxq.proof.input_ranges import input_ranges
from onnxq.proof.step_size import Steps
from onnxq.quant.qparams import Array
from onnxq.running import sessions as runtime
from onnxq.running.samples import Data, Feed, is_float, samples
from onnxq.running.sessions import Kind, ModelSource, OpenModel, Session, open_model


def float_outputs(session: Session) -> set[str]:
    """The outputs of a session that are real numbers."""
    return {o.name for o in session.outputs if o.dtype is not None and is_float(o.dtype)}


class Running:
    """A model and the session that runs it."""

    def __init__(
        self, source: ModelSource, kind: Kind = "reference", taps: Iterable[str] = ()
    ) -> None:
        self.model: OpenModel = open_model(source)
        self.kind = kind
        self.taps = tuple(taps)

    @cached_property
    def session(self) -> Session:
        """The session, opened when first needed; after a fallback, its own `kind` differs."""
        return runtime.session(self.model, self.kind, self.taps)

    @cached_property
    def steps(self) -> Steps:
        """The quantization steps of its tensors."""
        return Steps(self.model)

    @property
    def graph(self) -> onnx.GraphProto:
        """Its protobuf."""
        return self.model.proto.graph

    @property
    def wanted(self) -> list[str]:
        """The tensors to compare: all outputs, and the taps that are floats."""
        floats = float_outputs(self.session) if self.taps else set()
        taps = (name for name in self.taps if name in floats)
        return list(dict.fromkeys([*(o.name for o in self.graph.output), *taps]))


class Trusted(Running):
    """A model that others are compared with.

    At most `keep` bytes of its samples and results are kept for the next comparison; the rest is
    computed again.
    """

    def __init__(
        self,
        source: ModelSource,
        data: Data = None,
        *,
        kind: Kind = "reference",
        taps: Iterable[str] = (),
        count: int = 4,
        seed: int = 0,
        keep: int = 0,
    ) -> None:
        if seed < 0:
            raise OptionError(f"the seed {seed} is negative", fix="give a seed of at least 0")
        super().__init__(source, kind, taps)
        self._data, self._count, self._seed = data, count, seed
        self._kept: list[tuple[Feed, dict[str, Array]]] = []
        self._room = keep
        self._complete = False

    def results(self) -> Iterator[tuple[Feed, dict[str, Array]]]:
        """Every sample with the model's outputs."""
        yield from self._kept
        if self._complete:
            return
        ranges = input_ranges(self.model) if self._data is None else None
        feeds = samples(self.session, self._data, self._count, self._seed, ranges)
        for feed in itertools.islice(feeds, len(self._kept), None):
            made = self.session.run(feed, self.wanted)
            self._room -= sum(a.nbytes for a in (*feed.values(), *made.values()))
            if self._room >= 0:
                self._kept.append((feed, made))
            yield feed, made
        self._complete = self._room >= 0
