"""Puts the contents of a report together: one pass over the data, one look at the graph."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from onnxq.canonical.quantized_weights import quantized_weights
from onnxq.canonical.quantizers import Row
from onnxq.graph import Model
from onnxq.graph.dequantized import unread
from onnxq.lint.rule import Finding, Subject
from onnxq.observing.tensor_statistics import TensorStatistics
from onnxq.operators.op_kind import weight_of
from onnxq.pipeline import Pipeline
from onnxq.proof.prove import Proof
from onnxq.proof.verify import Report
from onnxq.quant.qparams import Role
from onnxq.reading import canonical
from onnxq.reporting.advice import advise
from onnxq.reporting.clamps import Bounds, clamp_of, clamps_of
from onnxq.reporting.commands import Names
from onnxq.reporting.contents import Contents, Facts, Timing
from onnxq.reporting.coverage import fates
from onnxq.reporting.distribution import Distribution, of_activation, of_weight
from onnxq.reporting.measured import (
    LayerError,
    Measured,
    measure,
    placed_activations,
    quantized_activations,
)
from onnxq.reporting.network import network
from onnxq.reporting.recasts import recast_grids
from onnxq.running.records import Data
from passes.collect_qparams import CollectQParams
from passes.infer_shapes import InferShapes

MOST_DISTRIBUTIONS = 600
"""Histograms in one page: each is about half a kilobyte."""


def gather(
    subject: Subject,
    names: Names,
    facts: Facts,
    *,
    against: Model | None = None,
    data: Data = None,
    findings: Sequence[Finding] = (),
    proofs: Sequence[Proof] = (),
    cost: Report | None = None,
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
    timing: Timing | None = None,
    refusal: tuple[str, str] | None = None,
    most: int | None = None,
    count: int = 4,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Contents:
    """The contents of the report on `subject`, beside the trusted model `against`."""
    # What the trusted model means: onnxruntime runs few dialects as they are.
    trusted = None if against is None else canonical(against)[0]
    watched = quantized_activations(subject.canonical)
    if not watched:
        watched = placed_activations(subject.canonical, subject.plain, subject.backend)
    measured = measure(
        *(subject.canonical, trusted, data),
        watched=watched,
        most=most,
        count=count,
        seed=seed,
        progress=progress,
    )
    progress("drawing the network")
    plain = Pipeline(InferShapes()).run(subject.plain).model
    table = subject.collected.qparams
    rows: dict[str, Row] = {r.tensor: r for r in table.of(Role.ACTIVATION)}
    rows |= {r.tensor: r for r in table.logarithmic if r.role is Role.ACTIVATION}
    layers = network(plain, rows, fates(subject, plain), _errors(measured))
    seen = {watched[name]: each for name, each in measured.seen.items()}
    clamps = None if trusted is None else clamps_of(trusted)
    drawn = tuple(
        itertools.islice(
            itertools.chain(_activations(seen, rows, clamps), _weights(subject.canonical, plain)),
            MOST_DISTRIBUTIONS,
        )
    )
    before = None if trusted is None else Pipeline(CollectQParams()).run(trusted)
    return Contents(
        names,
        facts,
        layers,
        measured,
        tuple(proofs),
        cost,
        drawn,
        () if before is None else recast_grids(before.model.qparams, table, seen),
        tuple(changes),
        advise(
            names,
            findings=findings,
            proofs=proofs,
            report=measured.report,
            layers=layers,
            distributions=drawn,
        ),
        (*notes, *measured.notes),
        timing,
        refusal,
    )


def _errors(measured: Measured) -> Mapping[str, LayerError]:
    """The errors by the names of the model: its outputs may have others than the trusted one's."""
    outputs = () if measured.report is None else measured.report.outputs
    renamed = {o.other: measured.errors[o.name] for o in outputs if o.name in measured.errors}
    return {**measured.errors, **renamed}


def _activations(
    seen: Mapping[str, TensorStatistics],
    rows: Mapping[str, Row],
    clamps: dict[str, Bounds] | None,
) -> list[Distribution]:
    """What was seen of activations, those that lose most first."""
    found = []
    for name, each in seen.items():
        row = rows.get(name)
        found.append(of_activation(name, each.histogram, row, clamp_of(name, row, clamps)))
    return sorted(filter(None, found), key=_loss)


def _weights(canonical_model: Model, plain: Model) -> Iterator[Distribution]:
    """The weights of layers: quantized ones over their codes, the others over their values."""
    done: set[str] = set()
    for _, params, values in quantized_weights(canonical_model):
        if params.role is Role.WEIGHT and params.tensor not in done:
            done.add(params.tensor)
            found = of_weight(params.tensor, values, params)
            if found is not None:
                yield found
    for node in plain.nodes():
        weight = weight_of(node)
        if weight is not None and weight.name not in done:
            done.add(str(weight.name))
            whole = unread(weight)
            found = None if whole is None else of_weight(str(weight.name), whole, None)
            if found is not None:
                yield found


def _loss(each: Distribution) -> float:
    return each.sqnr if math.isfinite(each.sqnr) else math.inf


__all__ = ["MOST_DISTRIBUTIONS", "gather"]
