"""Fits a model to a backend: canonical, every quantizer within the scheme.

Most passes of a backend's pipeline do not change what the network computes. A lossy one does, since
the target leaves no choice (a quantizer it does not support, weights with one bit less). Then the
model before it is kept as well: it must compute the same as the source, the files must compute the
same as the model after it, and the difference between the two is the cost.

Widening a range by one code (-127..127 to -128..127) is between the two: it changes something only
for inputs that reach that code. So files are first compared with the source as it is, and if values
differ with the model as it was widened, with the cost measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.backend import Backend
from onnxq.canonical.quantizers import QUANTIZERS, Row, row_of
from onnxq.errors import BackendError, listed
from onnxq.graph import Model
from onnxq.lint.scheme import broken_rules
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Observer, Pipeline
from onnxq.proof.change import Change
from onnxq.quant.qparams import QParams
from onnxq.quant.scheme_text import rules_text
from passes.approximate_grids import ApproximateGrids
from passes.fit_grids import FitGrids
from passes.phases import READ
from passes.widen_range import WidenRange, is_narrow

_ALLOW = (
    "; or move them to the nearest grids it supports, with the error measured: "
    "--allow-requantize (Python: allow_requantize=True)"
)

_WIDEN = WidenRange.name
_ON_LEGAL_GRIDS = ("quantize-bias", "fill-weight-range")
"""Passes that need quantizers within the scheme, in addition to the lossy ones."""


@dataclass(frozen=True)
class Fitted:
    """The result of a backend's pipeline."""

    model: Model
    traces: tuple[Trace, ...]
    """The traces of the passes after the readers."""
    change: Change | None
    """None if the model still computes the same."""
    widened: Change | None = None
    """The same with ranges that were widened by a code as a part of the change; None: there are
    none."""


def legal_pipeline(backend: Backend, allow_requantize: bool = False) -> Pipeline:
    """The backend's pipeline, with the passes that move quantizers into its scheme.

    These come before passes that depend on legal grids: biases are rounded to steps of the product
    of their layer, lossy passes expect grids of the target, and moved weights use as much of their
    range as trained ones.
    """
    rules = {
        "weights": rules_text(backend.scheme.weight),
        "activations": rules_text(backend.scheme.activation),
    }
    moves: tuple[Pass, ...] = (FitGrids(**rules),)
    if allow_requantize:
        moves += (ApproximateGrids(**rules),)
    passes = tuple(backend.pipeline)
    after = (i for i, p in enumerate(passes) if p.lossy or p.name in _ON_LEGAL_GRIDS)
    at = next(after, len(passes))
    return Pipeline(*passes[:at], *moves, *passes[at:])


def fit(
    source: Model, backend: Backend, *observers: Observer, allow_requantize: bool = False
) -> Fitted:
    """Run the backend's pipeline on a canonical model; raise if its scheme is not met.

    The readers at its start made the model canonical, and are not run again. With
    `allow_requantize`, unsupported quantizers are moved to the nearest grid that is supported.
    """
    pipeline = legal_pipeline(backend, allow_requantize)
    passes = tuple(pipeline)
    start = next((at for at, p in enumerate(passes) if p not in READ), len(passes))
    first = next((at for at, p in enumerate(passes) if p.lossy), len(passes))
    widening = next((at for at, p in enumerate(passes) if p.name == _WIDEN), len(passes))
    kept = {at: source for at in (first, widening) if at == start}

    def keep(index: int, step: Pass, model: Model, trace: Trace) -> None:
        """Keep the models from before the first lossy pass, and before ranges are widened."""
        after = index + 1
        if after == first < len(passes) or (after == widening < len(passes) and is_narrow(model)):
            kept[after] = model.clone()

    made = pipeline.run(source, *observers, keep, start=start)
    check_scheme(made.model, backend, allow_requantize, source)
    done = list(zip(passes[start:], made.traces, strict=True))
    lossy = tuple(trace for p, trace in done if p.lossy and trace.rewrites)
    change = Change(kept[first], made.model, lossy) if lossy else None
    both = tuple(t for p, t in done if (p.lossy or p.name == _WIDEN) and t.rewrites)
    if len(both) == len(lossy):
        return Fitted(made.model, made.traces, change)
    earliest = min(first, widening) if lossy else widening
    return Fitted(made.model, made.traces, change, Change(kept[earliest], made.model, both))


def check_scheme(
    model: Model, backend: Backend, allow_requantize: bool = False, source: Model | None = None
) -> None:
    """Raise one error for all quantizers that the target would reject.

    Its numbers are those of `source`: passes may have turned uint8 into int8.
    """
    nodes = [node for node in model.nodes(*QUANTIZERS) if broken_rules(node, backend.scheme)]
    if not nodes:
        return
    stated = _stated(source or model)
    broken: dict[str, None] = {}  # in order, without duplicates
    for node in nodes:
        params = row_of(node)
        rules = broken_rules(node, backend.scheme, _shift(params, stated))
        broken[f"'{params.tensor}' ({params.role}): {'; '.join(rules)}"] = None
    linear = not backend.scheme.activation.logarithmic and all(
        isinstance(row_of(node), QParams) for node in model.nodes(*QUANTIZERS)
    )
    raise BackendError(
        f"{len(broken)} quantizer{'s' if len(broken) > 1 else ''} not supported by "
        f"{backend.name}:{listed(broken)}",
        fix=f"train or quantize with {backend.name}'s scheme: "
        f"weights ({backend.scheme.weight}), activations ({backend.scheme.activation})"
        + (_ALLOW if linear and not allow_requantize else ""),
    )


_Steps = tuple[str, int, bool, bytes]
"""A name, bits, whether codes are signed, and scales: what tells the quantizers of a model apart.
Nodes may share their names, so the names alone do not."""


def _steps(params: QParams, name: str, signed: bool) -> _Steps:
    return name, params.qtype.bits, signed, params.scale.tobytes()


def _stated(source: Model) -> dict[_Steps, QParams]:
    """The rows of quantizers as the source has them, by their tensors and their own names."""
    found: dict[_Steps, QParams] = {}
    for node in source.nodes(*QUANTIZERS):
        row = row_of(node)
        if isinstance(row, QParams):
            for name in {row.tensor, row.source} - {""}:
                found.setdefault(_steps(row, name, row.qtype.signed), row)
    return found


def _shift(params: Row, stated: dict[_Steps, QParams]) -> int:
    """How much larger the codes of the same grid are in the source, if one of both is signed."""
    if not isinstance(params, QParams):
        return 0
    for name in (params.tensor, params.source):
        row = stated.get(_steps(params, name, not params.qtype.signed))
        if row is not None and row.zero_point.shape == params.zero_point.shape:
            (shift, *others) = np.unique(row.zero_point - params.zero_point).tolist()
            if not others:
                return int(shift)
    return 0
