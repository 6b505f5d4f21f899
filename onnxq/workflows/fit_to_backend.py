"""A model as a backend can take it: canonical, every quantizer within the scheme.

Most passes of a backend's pipeline keep what the network computes. A lossy one does not, since the
target leaves no choice (a quantizer it does not run, weights with a bit less). Then what went
before it is kept as well: that must compute what came in, the files must compute what comes out,
and the difference between the two is the cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from onnxq.backend import Backend
from onnxq.canonical.quantized_weights import is_operand
from onnxq.canonical.quantizers import QUANTIZERS, row_of
from onnxq.errors import BackendError, listed
from onnxq.graph import Model
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Observer, Pipeline
from onnxq.proof.change import Change
from onnxq.quant.qparams import QParams
from onnxq.quant.scheme_text import rules_text
from passes.approximate_grids import ApproximateGrids
from passes.fit_grids import FitGrids
from passes.phases import READ

_ALLOW = (
    "; or move them to the nearest grids it supports, with the error measured: "
    "--allow-requantize (Python: allow_requantize=True)"
)

_ON_LEGAL_GRIDS = ("quantize-bias", "fill-weight-range")
"""Passes that need quantizers within the scheme, in addition to the lossy ones."""


@dataclass
class _Keep:
    """Keeps the model from before pass number `first`."""

    first: int
    model: Model | None = field(default=None)

    def __call__(self, index: int, step: Pass, model: Model, trace: Trace) -> None:
        if index + 1 == self.first:
            self.model = model.clone()


@dataclass(frozen=True)
class Fitted:
    """The result of a backend's pipeline."""

    model: Model
    traces: tuple[Trace, ...]
    """Of the passes after the readers."""
    change: Change | None
    """None if the model still computes the same."""


def legal_pipeline(backend: Backend, allow_requantize: bool = False) -> Pipeline:
    """The backend's pipeline, and what moves other quantizers into its scheme.

    Biases are rounded to steps of what their layer multiplies, lossy passes look at grids that the
    target has, and moved weights use as much of their range as trained ones: these come after.
    """
    rules = {
        "weights": rules_text(backend.scheme.weight),
        "activations": rules_text(backend.scheme.activation),
    }
    moves: tuple[Pass, ...] = (FitGrids(**rules),)
    if allow_requantize:
        moves += (ApproximateGrids(**rules),)
    steps = tuple(backend.pipeline)
    behind = (i for i, s in enumerate(steps) if s.lossy or s.name in _ON_LEGAL_GRIDS)
    at = next(behind, len(steps))
    return Pipeline(*steps[:at], *moves, *steps[at:])


def fit(
    source: Model, backend: Backend, *observers: Observer, allow_requantize: bool = False
) -> Fitted:
    """Run the backend's pipeline on a canonical model and refuse what its scheme does not have.

    The readers at its head made the model canonical, and are not run again. With
    `allow_requantize`, what does not fit is moved onto the nearest grid that does.
    """
    pipeline = legal_pipeline(backend, allow_requantize)
    steps = tuple(pipeline)
    start = next((at for at, step in enumerate(steps) if step not in READ), len(steps))
    first = next((at for at, step in enumerate(steps) if step.lossy), len(steps))
    keep = _Keep(first, source if first == start else None)
    watching = (*observers, keep) if first < len(steps) else observers
    made = pipeline.run(source, *watching, start=start)
    check_scheme(made.model, backend, allow_requantize)
    done = zip(steps[start:], made.traces, strict=True)
    lossy = tuple(trace for step, trace in done if step.lossy and trace.rewrites)
    if not lossy:
        return Fitted(made.model, made.traces, None)
    assert keep.model is not None
    return Fitted(made.model, made.traces, Change(keep.model, made.model, lossy))


def broken_rules(node: gs.Node, backend: Backend) -> list[str]:
    """What the target's scheme does not have of this quantizer; constants may be activations."""
    params = row_of(node)
    rules = list(backend.scheme.violations(params))
    if rules and is_operand(node):
        rules = min(rules, list(backend.scheme.activation.violations(params)), key=len)
    return rules


def check_scheme(model: Model, backend: Backend, allow_requantize: bool = False) -> None:
    """One error for everything that the target would not accept."""
    broken: dict[str, None] = {}  # in order, each once
    linear = not backend.scheme.activation.logarithmic
    for node in model.nodes(*QUANTIZERS):
        params = row_of(node)
        linear = linear and isinstance(params, QParams)
        rules = broken_rules(node, backend)
        if rules:
            broken[f"'{params.tensor}' ({params.role}): {'; '.join(rules)}"] = None
    if broken:
        raise BackendError(
            f"{len(broken)} quantizer{'s' if len(broken) > 1 else ''} not supported by "
            f"{backend.name}:{listed(broken)}",
            fix=f"train or quantize with {backend.name}'s scheme: "
            f"weights ({backend.scheme.weight}), activations ({backend.scheme.activation})"
            + (_ALLOW if linear and not allow_requantize else ""),
        )
