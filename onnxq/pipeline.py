"""A pipeline: passes in order, as a value.

Order constraints are declared by the passes and checked when the value is built, never solved:
passes run in the order written. Observers watch from outside (timing, dumps).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from onnxq.discovery import find_pass
from onnxq.errors import InvalidModelError, OnnxqError, OptionError, PassError
from onnxq.graph import Model, save
from onnxq.parsing.argument_types import FLAG, INTEGER, takes
from onnxq.parsing.argument_types import check as check_type
from onnxq.pass_ import Pass, Quoted, Trace
from onnxq.storage.gc_pause import gc_paused


class Observer(Protocol):
    """Sees the model after each pass."""

    def __call__(self, index: int, step: Pass, model: Model, trace: Trace) -> None:
        """Called after pass number `index` (from 0)."""


@dataclass(frozen=True)
class Result:
    """The result of a pipeline, and a trace of each pass."""

    model: Model
    traces: tuple[Trace, ...]

    def __repr__(self) -> str:
        rewrites = sum(len(trace.rewrites) for trace in self.traces)
        return f"<Result of {len(self.traces)} passes, {rewrites} rewrites: {self.model!r}>"


class Pipeline:
    """An immutable sequence of passes."""

    def __init__(self, *steps: Pass) -> None:
        self.steps = steps
        seen: list[str] = []
        for step in steps:
            _check_step(step)
            for earlier in step.after:
                if earlier not in seen and any(s.name == earlier for s in steps):
                    raise OptionError(
                        f"pass '{step.name}' comes before '{earlier}'",
                        fix=f"put '{earlier}' before '{step.name}'",
                    )
            seen.append(step.name)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.steps == other.steps

    def __hash__(self) -> int:
        return hash(self.steps)

    def __add__(self, other: Pipeline | Sequence[Pass]) -> Pipeline:
        return Pipeline(*self.steps, *other)

    def __str__(self) -> str:
        return ",".join(map(str, self.steps))

    def __repr__(self) -> str:
        return f"Pipeline({str(self)!r})"

    def without(self, *names: str) -> Pipeline:
        """The same pipeline without the passes of these names."""
        self._positions(*names)
        return Pipeline(*(s for s in self.steps if s.name not in names))

    def insert_after(self, name: str, *steps: Pass) -> Pipeline:
        """The same pipeline with `steps` after the (last) pass `name`."""
        at = self._positions(name)[-1] + 1
        return Pipeline(*self.steps[:at], *steps, *self.steps[at:])

    def _positions(self, *names: str) -> list[int]:
        at: list[int] = []
        for name in names:
            found = [i for i, s in enumerate(self.steps) if s.name == name]
            if not found:
                raise OptionError(
                    f"the pipeline has no pass '{name}'", fix=f"its passes: {self or 'none'}"
                )
            at += found
        return at

    @classmethod
    @takes(text=str)
    def parse(cls, text: str) -> Pipeline:
        """Read the text form: names separated by commas, options in braces."""
        return cls(*(find_pass(name).from_options(options) for name, options in _split(text)))

    @takes(model=Model, observers=Callable, start=INTEGER, in_place=FLAG, check=FLAG)
    @gc_paused()
    def run(
        self,
        model: Model,
        *observers: Observer,
        start: int = 0,
        in_place: bool = False,
        check: bool = True,
    ) -> Result:
        """Run all passes on a copy of `model` (or on itself), and check the result.

        The first `start` passes are left out, as they have been run on the model already.

        An invalid graph is reported with the pass that made it: if the check at the end, or a pass,
        finds one, the passes run again on another copy, with a check after each.
        """
        if not 0 <= start <= len(self):
            raise OptionError(
                f"a pipeline of {len(self)} passes has no start {start}",
                fix="give the number of passes to leave out",
            )
        work = model if in_place else model.clone()
        try:
            traces = tuple(self._run(work, observers, start))
            if check:
                work.check()
        except Exception as error:
            if check and not _is_refusal(error):
                if not in_place:
                    self._find_fault(model, start)
                elif isinstance(error, InvalidModelError):
                    error.add_note(f"after '{self}', in place: run on a copy to find the pass")
            raise
        return Result(work, traces)

    def _find_fault(self, model: Model, start: int) -> None:
        """Raise InvalidModelError that names the pass which breaks the graph, if one does."""
        try:
            for _ in self._run(model.clone(), (), start, check_each=True):
                pass
        except InvalidModelError:
            raise
        except Exception:  # what the first run raised says the same
            return

    def _run(
        self, work: Model, observers: tuple[Observer, ...], start: int, check_each: bool = False
    ) -> Iterator[Trace]:
        """The trace of each pass on `work`."""
        work.refresh()
        for index, step in enumerate(self.steps[start:], start=start):
            trace = Trace(step.name)
            raised = len(work.upgrades)
            started = time.perf_counter()
            try:
                returned: object = step.run(work, trace)  # type: ignore[func-returns-value]
                if returned is not None:
                    raise PassError(
                        f"run() of '{step.name}' returned a {type(returned).__name__}",
                        fix="change the model in place, and return nothing",
                    )
                # What a pass rewrites it reports. Where there is nothing to clean up, cleaning up
                # costs more than most passes; the whole is looked at once more at the end.
                last = index + 1 == len(self.steps)
                if trace.rewrites or len(work.upgrades) > raised or last:
                    work.sweep()
                    work.refresh()
                if check_each:
                    work.check()
            except Exception as error:
                before = ", ".join(s.name for s in self.steps[:index]) or "nothing"
                error.add_note(
                    f"in pass '{step.name}' (number {index + 1} of {len(self.steps)}; "
                    f"before it: {before})"
                )
                raise
            trace.seconds = time.perf_counter() - started
            trace.notes += work.upgrades[raised:]
            for observer in observers:
                observer(index, step, work, trace)
            yield trace


def _check_step(step: object) -> None:
    """Refuse what cannot be a step of a pipeline."""
    if isinstance(step, tuple | list | Pipeline):
        raise OptionError(
            f"a {type(step).__name__} of passes is not a pass",
            fix="write a star before it, as in Pipeline(*READ, *CLEAN)",
        )
    if isinstance(step, type) and issubclass(step, Pass):
        raise OptionError(
            f"{step.__name__} is the class of a pass",
            fix=f"write {step.__name__}(...), with its options",
        )
    check_type("Pipeline", "steps", step, (Pass,))
    assert isinstance(step, Pass)
    if not step.name:
        raise OptionError(
            f"the pass {type(step).__name__} has no name",
            fix='set name: ClassVar[str] = "..." in the class',
        )
    for option in step.options().values():
        option.check(getattr(step, option.name), step.name)


def _is_refusal(error: Exception) -> bool:
    """Whether a pass declined for a reason of its own, and not because the graph is invalid."""
    return isinstance(error, OnnxqError) and not isinstance(error, InvalidModelError)


@dataclass
class Timing:
    """Observer that adds up seconds per pass."""

    seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, index: int, step: Pass, model: Model, trace: Trace) -> None:
        """Add the time of this pass."""
        self.seconds[step.name] = self.seconds.get(step.name, 0.0) + trace.seconds


@dataclass(frozen=True)
class Dump:
    """Observer that writes the model after each pass as `NN-name.onnx`."""

    folder: Path

    def __call__(self, index: int, step: Pass, model: Model, trace: Trace) -> None:
        """Write the model as it is now."""
        save(model, self.folder / f"{index + 1:02d}-{step.name}.onnx")


# -- the text form ----------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[^\s,{}=']+)|(?P<mark>[,{}=])|'(?P<quoted>(?:\\.|[^'\\])*)')""", re.DOTALL
)


def _split(text: str) -> list[tuple[str, dict[str, str]]]:
    """`a,b{x=1 y='p q'}` as [("a", {}), ("b", {"x": "1", "y": "p q"})]."""

    def wrong(why: str) -> OptionError:
        return OptionError(
            f"cannot read the pipeline '{text}': {why}",
            fix='write it like "fold-batch-norm,to-qdq{opset=21}"',
        )

    tokens: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:  # words and marks take everything but a quote
            quote = text.index("'", at)
            raise wrong(f"the quote at position {quote} is not closed")
        kind = str(found.lastgroup)
        value = found.group(kind)
        if kind == "quoted":
            value = Quoted(re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL))
        tokens.append((kind, value))
        at = found.end()

    steps: list[tuple[str, dict[str, str]]] = []
    i = 0
    while i < len(tokens):
        if tokens[i][0] != "word":
            raise wrong(f"a pass name is expected, not '{tokens[i][1]}'")
        name, options = tokens[i][1], {}
        i += 1
        if i < len(tokens) and tokens[i] == ("mark", "{"):
            i += 1
            while i < len(tokens) and tokens[i] != ("mark", "}"):
                if tokens[i] == ("mark", ","):
                    i += 1
                    continue
                part = tokens[i : i + 3]
                if len(part) < 3 or part[0][0] != "word" or part[1] != ("mark", "="):
                    raise wrong(f"an option is written name=value (near '{tokens[i][1]}')")
                if part[2][0] == "mark":
                    raise wrong(f"option '{part[0][1]}' has no value")
                if part[0][1] in options:
                    raise wrong(f"duplicate option '{part[0][1]}'")
                options[part[0][1]] = part[2][1]
                i += 3
            if i >= len(tokens):
                raise wrong("a '}' is missing")
            i += 1
        steps.append((name, options))
        if i < len(tokens):
            if tokens[i] != ("mark", ","):
                raise wrong(f"a comma is expected before '{tokens[i][1]}'")
            i += 1
            if i == len(tokens):
                raise wrong("it ends with a comma")
    return steps


__all__ = ["Dump", "Observer", "Pipeline", "Result", "Timing"]
