"""The proof: run two models on the same inputs and measure how far their tensors differ.

The first model is trusted. Outputs decide whether the comparison passes. With `per_layer`, tensors
that have the same name in both models are measured too, in the order of the first model, and the
first one beyond the tolerance shows where the models diverge.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import onnx

from onnxq.errors import OnnxqError, OptionError, VerifyError, near_matches
from onnxq.graph import Model
from onnxq.parsing.argument_types import FLAG, INTEGER, NUMBER, PATH, takes
from onnxq.proof.difference import RunningDiff, TensorDiff, Tolerance
from onnxq.proof.kernel_difference import KernelDiff
from onnxq.proof.trusted import Running, Trusted, float_outputs
from onnxq.quant.qparams import Array
from onnxq.running import sessions as runtime
from onnxq.running.ort_tensors import TensorSpec, is_size
from onnxq.running.samples import Data, cast
from onnxq.running.sessions import Kind, ModelSource, OpenModel, Session, open_model
from onnxq.storage.node_order import ordered, reads
from onnxq.views.shown_result import ShownResult

if TYPE_CHECKING:
    from rich.console import RenderableType

Values = Mapping[str, Array]
"""Tensors of one sample, by name."""

_RANK = ("first", "second")
_NEARLY_ZERO = 1e-4


@dataclass(frozen=True, repr=False)
class Report(ShownResult):
    """The result of a comparison."""

    outputs: tuple[TensorDiff, ...]
    layers: tuple[TensorDiff, ...]
    """The shared tensors, in the order of the first model (with `per_layer`)."""
    samples: int
    sessions: tuple[str, str]
    """The kinds of session that really ran the models."""
    notes: tuple[str, ...]
    """Limits of the proof: fallbacks, kernels that saturate."""
    kernels: tuple[KernelDiff, ...] = ()
    """The kernels one by one, if the outputs did not tell: see `onnxq.proof.kernels`."""

    def __repr__(self) -> str:
        verdict = "the models agree" if self.passed else "the models differ"
        worst = self.worst
        most = "" if worst is None else f", at most {worst.max:.3g} {worst.unit} at '{worst.name}'"
        return f"<Report: {verdict}{most}>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import tables

        return tables.short_report(self, most)

    @property
    def passed(self) -> bool:
        """Whether every output was compared and is within the tolerance, and every kernel too."""
        outputs = all(o.passed and o.finite for o in self.outputs)
        return outputs and all(k.passed for k in self.kernels)

    @property
    def wrong(self) -> KernelDiff | None:
        """The first kernel that computes something else."""
        return next((kernel for kernel in self.kernels if not kernel.passed), None)

    @property
    def furthest(self) -> KernelDiff | None:
        """The kernel that is furthest off, in multiples of its limit."""
        return max(self.kernels, key=lambda k: k.severity, default=None)

    @property
    def drifts(self) -> bool:
        """Whether the outputs differ too much, but every kernel is right."""
        return bool(self.kernels) and self.wrong is None

    @property
    def worst(self) -> TensorDiff | None:
        """The output with the largest difference, in multiples of the tolerance."""
        return max(self.outputs, key=lambda o: o.severity, default=None)

    @property
    def first_divergence(self) -> TensorDiff | None:
        """The first layer beyond the tolerance."""
        return next((layer for layer in self.layers if not layer.passed), None)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        first = self.first_divergence
        return {
            "passed": self.passed,
            "samples": self.samples,
            "sessions": list(self.sessions),
            "outputs": [o.to_json() for o in self.outputs],
            "layers": [layer.to_json() for layer in self.layers],
            "kernels": [kernel.to_json() for kernel in self.kernels],
            "first_divergence": None if first is None else first.name,
            "notes": list(self.notes),
        }


SOURCE = (Model, onnx.ModelProto, OpenModel, *PATH)
"""The types of a model that `verify` accepts."""


@takes(
    a=SOURCE,
    b=SOURCE,
    data=(*PATH, Iterable, None),
    per_layer=FLAG,
    sessions=(tuple, list),
    count=INTEGER,
    seed=INTEGER,
    max_steps=NUMBER,
    max_moved=NUMBER,
    max_relative=NUMBER,
    progress=Callable,
)
def verify(
    a: ModelSource,
    b: ModelSource,
    data: Data = None,
    *,
    per_layer: bool = False,
    sessions: tuple[Kind, Kind] = ("reference", "reference"),
    count: int = 4,
    seed: int = 0,
    max_steps: float = 1.0,
    max_moved: float = 0.01,
    max_relative: float = 1e-3,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Compare model `b` with the trusted model `a`, output by output.

    Outputs are paired by name, or by position if the names differ. Inputs come from `data` (see
    `onnxq.running.samples`) or are `count` seeded random ones, in the range of the input's
    quantizer. `progress` is called with what is being done.
    """
    _check(sessions)
    progress("opening both models")
    models = open_model(a), open_model(b)
    plain = tuple(sessions) == ("reference", "reference")
    layers = shared_tensors(models, plain) if per_layer else []
    # Without optimisation, taps change nothing: one session is enough.
    taps = layers if plain else []
    trusted = Trusted(models[0], data, kind=sessions[0], taps=taps, count=count, seed=seed)
    other = Running(models[1], sessions[1], taps)
    numbers = itertools.count(1)

    def watch(*_: Values) -> None:
        progress(f"compared {_samples(next(numbers))}")

    limits = Tolerance(max_steps, max_moved, max_relative)
    progress("comparing the first sample")
    return compare(trusted, other, limits, layers, watch=watch)


def _samples(number: int) -> str:
    return f"{number} sample{'' if number == 1 else 's'}"


def compare(
    trusted: Trusted,
    other: Running,
    limits: Tolerance,
    layers: Iterable[str] = (),
    *,
    watch: Callable[[Values, Values], None] = lambda *_: None,
) -> Report:
    """Compare `other` with `trusted` on the samples of `trusted`.

    `layers` are measured too, in sessions of their own unless they are tapped already. `watch` is
    called with inputs and tensors of both models, sample by sample.
    """
    runs = tapped = trusted.session, other.session
    shared = list(layers)
    if shared and not trusted.taps:
        tapped = (
            runtime.session(trusted.model, runs[0].kind, shared),
            runtime.session(other.model, runs[1].kind, shared),
        )
    floats = float_outputs(tapped[0]) & float_outputs(tapped[1])
    pairs, renamed = pair_outputs(trusted.graph, other.graph), pair_inputs(*runs)

    def running(name: str, twin: str) -> RunningDiff:
        return RunningDiff(name, twin, trusted.steps.of(name) or other.steps.of(twin))

    outputs = {pair: running(*pair) for pair in pairs}
    inner = {(name, name): running(name, name) for name in shared if name in floats}
    number = 0
    for feed, values in trusted.results():
        number += 1
        try:
            twin = {spec.name: cast("input", spec, feed[name]) for name, spec in renamed.items()}
            made = values, runs[1].run(twin, other.wanted)
        except OnnxqError as error:
            why = _of_other_inputs(runs[0], renamed)
            if why is None:
                raise
            raise why from error
        _add(outputs, made)
        if inner and tapped is not runs:
            names = [name for name, _ in inner]
            made = tapped[0].run(feed, names), tapped[1].run(twin, names)
        _add(inner, made)
        watch({**feed, **made[0]}, {**twin, **made[1]})
    if not number:
        raise VerifyError("nothing was compared: there are no samples", fix="ask for at least one")

    producers = _producers(trusted.graph)
    found, within = (
        tuple(r.result(*producers.get(name, ("", "")), limits) for (name, _), r in diffs.items())
        for diffs in (outputs, inner)
    )
    report = Report(found, within, number, (runs[0].kind, runs[1].kind), ())
    models = trusted.model, other.model
    notes = (*_notes(models, runs, tapped, report.passed), *_weak(report.outputs))
    return replace(report, notes=notes)


def _check(sessions: tuple[Kind, ...]) -> None:
    if len(sessions) != 2:
        raise OptionError(
            f"{len(sessions)} sessions for two models", fix="give one session for each model"
        )
    for kind in sessions:
        if kind not in get_args(Kind):
            raise OptionError(
                f"there is no session '{kind}'", fix=near_matches(str(kind), get_args(Kind))
            )


def saturation(deployed: Trusted) -> TensorDiff | None:
    """How far onnxruntime's default session is off on this CPU, or None if it is right.

    `deployed` runs in the `deployed` session, which differs from the default only in avoiding the
    kernels that saturate: so other effects of optimisation (up to a step) are no false alarm,
    and integer operators, which saturate in the reference session too, are covered. A model that
    the default session refuses raises.
    """
    report = compare(deployed, Running(deployed.model, "shipped"), Tolerance(max_moved=1.0))
    return None if report.passed else report.worst


def _add(
    running: Mapping[tuple[str, str], RunningDiff],
    made: tuple[Values, Values],
) -> None:
    for (name, other), diff in running.items():
        diff.add(made[0][name], made[1][other])


def pair_outputs(first: onnx.GraphProto, second: onnx.GraphProto) -> list[tuple[str, str]]:
    """The outputs of two models that belong together: by name, or else by position."""
    names, others = ([o.name for o in graph.output] for graph in (first, second))
    if len(names) != len(others):
        raise VerifyError(
            f"the first model has {len(names)} outputs ({', '.join(names)}), "
            f"the second {len(others)} ({', '.join(others)})",
            fix="compare models with the same outputs",
        )
    if set(names) == set(others):
        return [(n, n) for n in names]
    return list(zip(names, others, strict=True))


def pair_inputs(first: Session, second: Session) -> dict[str, TensorSpec]:
    """For each input of the first model, the input of the second that gets its value."""
    names, specs = [i.name for i in first.inputs], {i.name: i for i in second.inputs}
    if set(specs) <= set(names):  # a pass may have removed an unused input
        return {n: specs[n] for n in names if n in specs}
    if len(names) != len(specs):
        raise VerifyError(
            f"the first model has inputs {', '.join(names)}, the second {', '.join(specs)}",
            fix="compare models with the same inputs",
        )
    return dict(zip(names, second.inputs, strict=True))


def _of_other_inputs(first: Session, renamed: Mapping[str, TensorSpec]) -> VerifyError | None:
    """The error for models whose inputs differ, as the reason why the second one does not run."""
    given = {spec.name: spec for spec in first.inputs}
    for name, spec in renamed.items():
        one, two = given[name], spec
        sizes = zip(one.shape, two.shape, strict=False)
        ranked = bool(one.shape and two.shape) and len(one.shape) != len(two.shape)
        if ranked or any(is_size(a) and is_size(b) and a != b for a, b in sizes):
            return VerifyError(
                f"the second model does not run with the inputs of the first: '{name}' is {one} "
                f"in the first, '{two.name}' is {two} in the second",
                fix="compare models with the same inputs",
            )
    return None


def shared_tensors(models: tuple[OpenModel, OpenModel], plain: bool = True) -> list[str]:
    """The tensors to compare: computed in both models, in the order of the first.

    In an optimised session (not `plain`) only activations after DequantizeLinear: onnxruntime
    copies that node for another consumer, while any other tap would prevent the fusion it is meant
    to show, or (weights) make onnxruntime refuse the model.
    """
    first, second = (_producers(m.proto.graph) for m in models)
    return [
        name
        for name in varying(models[0].proto.graph)
        if name in first and name in second
        if plain or first[name][0] == second[name][0] == "DequantizeLinear"
    ]


def _producers(graph: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    """The producer of each tensor: operator and name of the node."""
    return {name: (n.op_type, n.name) for n in graph.node for name in n.output if name}


def varying(graph: onnx.GraphProto) -> dict[str, None]:
    """The tensors that depend on an input of the graph, each after those it depends on.

    Weights are not among them: passes rewrite them and keep their names.
    """
    fixed = {t.name for t in graph.initializer}
    found = dict.fromkeys(i.name for i in graph.input if i.name not in fixed)
    for node in ordered(graph):
        if any(name in found for name in reads(node)):
            found.update(dict.fromkeys(filter(None, node.output)))
    return found


def _weak(outputs: Iterable[TensorDiff]) -> Iterator[str]:
    """Notes on outputs that prove little, whatever the result."""
    outputs = tuple(outputs)
    if outputs and all(diff.constant for diff in outputs):
        yield "the output is the same value everywhere on these inputs: give --data"
    for diff in outputs:
        if diff.source_nan:
            yield (
                f"the source model itself computes NaN at '{diff.name}' ({diff.source_nan} of "
                f"{diff.count} values); check what is before it (0 / 0, the logarithm or root of "
                "a negative number, sums beyond the type), or give other inputs (data)"
            )
        elif not diff.finite:
            yield f"output '{diff.name}': no finite value was compared; give other inputs (data)"
        elif diff.unit == "relative" and diff.size < _NEARLY_ZERO:
            yield (
                f"output '{diff.name}' is nearly zero (at most {diff.size:.2g}) on these inputs; "
                "give real ones (data)"
            )


def _notes(
    models: tuple[OpenModel, OpenModel],
    runs: tuple[Session, Session],
    tapped: tuple[Session, Session],
    passed: bool,
) -> Iterator[str]:
    for rank, model, run in zip(_RANK, models, runs, strict=True):
        if run.note:
            yield f"{rank} model: {run.note}"
        integer = [] if run.kind == "deployed" else runtime.integer_ops(model, run.kind)
        if integer:
            yield (
                f"{rank} model: integer kernels may saturate on a CPU without VNNI in the "
                f"{run.kind} session, which is then no reference "
                f"(nodes: {len(integer)}, '{integer[0]}' first)"
            )
        if run.kind == "shipped" and not passed:
            yield (
                f"{rank} model: onnxruntime's default session saturates 8-bit sums on a CPU "
                "without VNNI; compare the deployed session to distinguish this from a wrong "
                "model"
            )
    for rank, run, tap in zip(_RANK, runs, tapped, strict=True):
        if tap.note and tap.note != run.note:
            yield f"{rank} model, layers: {tap.note}"
