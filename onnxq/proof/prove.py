"""Proves a conversion: the written files are read back and compared with the source.

A model is run as written. If it has operators that onnxruntime does not have, or that round at
other places than the float graph (QLinearConv ...), it is read back into the canonical form, which
must then match the source; optimised sessions still run it unchanged. A side file is read back and
applied to the clean model beside it. A lossy change is not part of a proof: it is measured.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from onnxq.backend import Backend, OnnxFile, TableFile
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.dialects import openvino, qonnx
from onnxq.edit import describe
from onnxq.errors import OnnxqError
from onnxq.graph import Model, domain_of, from_proto
from onnxq.operators.integer_operators import find
from onnxq.pipeline import Pipeline
from onnxq.proof.change import JUDGED, Change
from onnxq.proof.difference import RunningDiff, Tolerance
from onnxq.proof.judging import ANYTHING, judged
from onnxq.proof.reach import shortened
from onnxq.proof.trusted import Running, Trusted
from onnxq.proof.verify import Report, compare, saturation
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.running.freed_memory import give_back
from onnxq.running.sessions import Kind, OpenModel, open_model
from onnxq.side_files.native_format import models
from onnxq.side_files.side_file import Content
from passes.apply_qparams import ApplyQParams
from passes.phases import READ

if TYPE_CHECKING:
    from onnxq.running.samples import Data


COST = "requantized (cost)"
"""Name of the proof that judges the cost of moving quantizers."""


KEPT = 64 << 20
"""Most bytes of samples and results of the trusted model that are kept for the next comparison."""


@dataclass(frozen=True)
class Proof:
    """One comparison of a written file with the source."""

    what: str
    report: Report
    refused: str = ""
    """The reason why the runtime did not run the file as asked; then nothing is proven."""

    def __repr__(self) -> str:
        return f"<Proof of {self.what}: {'holds' if self.passed else 'FAILED'}>"

    @property
    def passed(self) -> bool:
        """Whether the file ran as asked and computes the same as the source."""
        return self.report.passed and not self.refused

    @property
    def is_cost(self) -> bool:
        """Whether it judges a change that the target needs, not a written file."""
        return self.what == COST

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "what": self.what,
            "refused": self.refused,
            **self.report.to_json(),
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Proven:
    """The result of a proof."""

    proofs: tuple[Proof, ...]
    notes: list[str]
    """Limits of the proof, and differences of onnxruntime."""
    cost: Report | None
    """The difference caused by a lossy change; None without one."""


def prove(
    backend: Backend,
    source: Model,
    files: Mapping[str, Path],
    table: QParamTable,
    *,
    change: Change | None = None,
    min_sqnr: float | None = None,
    data: Data | None = None,
    count: int = 4,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Proven:
    """Compare the files of `backend`, given by suffix, with the canonical `source`.

    `table` is the quantization in the files. After a lossy `change` they are compared with its
    result, and the cost of the change is measured. `min_sqnr` limits the cost: the least ratio of
    signal to difference at every output, in dB, instead of the limit for moved quantizers.
    """
    running = partial(Trusted, data=data, count=count, seed=seed, keep=KEPT)
    before = running(source)
    trusted = before if change is None else running(change.after)
    # One model at a time stays in memory: its side files are proven one after the other.
    opened = functools.lru_cache(maxsize=1)(lambda suffix: open_model(files[suffix]))
    limits = {kind: _tolerance(source, table, kind) for kind in get_args(Kind)}
    proofs: list[Proof] = []
    kinds, notes = _sessions(backend, source)
    first = backend.outputs[0].suffix
    shown = first.lstrip("_")
    deployed = Trusted(opened(first), data, kind="deployed")
    for kind in kinds:
        progress(f"proving {shown} in onnxruntime ({kind} session)")
        give_back()
        if kind == "reference":
            proofs.append(_meaning(shown, deployed.model, trusted, limits[kind]))
        else:
            made = deployed if kind == "deployed" else Running(deployed.model, kind)
            report = judged(trusted, made, limits[kind])
            if report.sessions[1] == kind:
                proofs.append(Proof(f"{shown} ({kind})", report))
                notes += _kernels_off(report)
            else:
                why = f"onnxruntime refuses the {kind} session"
                proofs.append(Proof(f"{shown} ({kind}: refused)", report, why))
    if "deployed" in backend.sessions:
        progress("looking for sums that saturate in onnxruntime's default session")
        give_back()
        notes += _saturation(deployed)
    del deployed  # its session holds memory
    for output in backend.outputs:
        if isinstance(output, TableFile) and output.suffix in files:
            progress(f"proving {output.suffix.lstrip('_')} by reading it back")
            content = output.format.decode(files[output.suffix].read_bytes())
            proofs.append(_side_file(output, content, opened(output.beside), trusted, limits))
    for native, parts in models(backend.outputs).items():
        progress(f"proving the {native.name} model by reading it back")
        stored = {f.part: f.decode(files[f.suffix].read_bytes()) for f in parts}
        report = judged(trusted, Running(native.read(stored)), limits["reference"])
        what = " and ".join(f.suffix.lstrip("_.") for f in parts)
        proofs.append(Proof(f"{what} (read back)", report))
    if change is None:
        return Proven(tuple(proofs), notes, None)
    progress("measuring the cost of the changes")
    report = judged(before, Running(change.before), limits["reference"])
    proofs.append(Proof("up to the change (canonical)", report))
    cost = compare(before, trusted, ANYTHING)
    if min_sqnr is not None or any(t.name in JUDGED for t in change.traces):
        limit = _bearable(source, table)
        if min_sqnr is not None:
            limit = replace(ANYTHING, min_sqnr=min_sqnr)
        limited = tuple(replace(output, tolerance=limit) for output in cost.outputs)
        proofs.append(Proof(COST, replace(cost, outputs=limited)))
    return Proven(tuple(proofs), notes, cost)


def _meaning(shown: str, file: OpenModel, trusted: Trusted, limits: Tolerance) -> Proof:
    """Compare the meaning of a file, in the reference session, with the trusted model."""
    model = from_proto(file.proto, file.folder)
    strange = any(domain_of(n) in _NOT_RUN or find(domain_of(n), n.op) for n in model.nodes())
    made = Running(Pipeline(*READ).run(model, in_place=True).model if strange else file)
    report = judged(trusted, made, limits)
    short = tuple(shortened(trusted.model, made.model))
    if short:
        note = (
            f"the range of {len(short)} quantizers ends sooner than in the source, first that of "
            f"'{short[0].name}', by {short[0].deviation:.3g} steps: larger inputs than these would "
            "be cut off there"
        )
        report = replace(report, kernels=(*short, *report.kernels), notes=(*report.notes, note))
    return Proof(f"{shown} ({'read back' if strange else 'reference'})", report)


def _side_file(
    output: TableFile,
    content: Content,
    beside: OpenModel,
    trusted: Trusted,
    limits: Mapping[Kind, Tolerance],
) -> Proof:
    """Read a side file back and apply it to the clean model beside it, or compare magnitudes."""
    shown = output.suffix.lstrip("_")
    model = from_proto(beside.proto, beside.folder)
    held = output.format.read(content, model)
    if output.format.magnitudes:
        return Proof(f"{shown} (ranges read back)", _reaches(model.qparams, held))
    model.qparams = table_told(model.qparams, held, output.format.weights)
    applied = Pipeline(ApplyQParams()).run(model, in_place=True).model
    return Proof(f"{shown} (read back)", judged(trusted, Running(applied), limits["reference"]))


_FINE_STEPS = 0.25
"""In steps of 8 bits: 1e-3 of the range, as much as outputs without a grid may differ by."""
_SAME = Tolerance(max_single_relative=1 / 127.5, max_fine_steps=_FINE_STEPS)
"""Next to nothing, as measured in the reference session.

Folding rounds sums differently, so a value between two codes may become either. Such a flip is one
step of an output with 8 bits; of an output without a grid single elements may differ by one step of
the 8-bit grid over its range, if the average is within 1e-3.
"""
_UNEXPLAINED, _UNEXPLAINED_HALF = 0.25, 0.4
"""What integer kernels may be off before rounding, in steps of 8 bits; float16 has 11 bits."""
_NOT_RUN = (openvino.DOMAIN, qonnx.DOMAIN)
"""Domains whose operators onnxruntime does not have."""


def _reaches(table: QParamTable, read: QParamTable) -> Report:
    """The differences of the largest magnitudes in a file from those of the table: one rounding."""
    found = {row.tensor: row for row in read}
    diffs = []
    for row in table.of(Role.ACTIVATION):
        diff = RunningDiff(row.tensor, row.tensor, None)
        other = found.get(row.tensor)
        reach = [np.max(np.abs(r.range)) if r else np.float64("nan") for r in (row, other)]
        diff.add(np.array(reach[0]), np.array(reach[1]))
        limits = Tolerance(max_relative=2.0**-23, max_absolute=0.0)
        diffs.append(diff.result("", "", limits))
    return Report(tuple(diffs), (), 1, ("reference", "reference"), ())


def _sessions(backend: Backend, source: Model) -> tuple[tuple[Kind, ...], list[str]]:
    """The sessions to compare in, with a note on omitted ones."""
    first = backend.outputs[0]
    if isinstance(first, OnnxFile) and first.clean:
        return (), []  # a float model proves nothing: side files are read back
    inner = [n for n in source.nodes(FAKE_QUANTIZE) if n.owner is not source.graph]
    if not inner or backend.sessions == ("reference",):
        return backend.sessions, []
    note = (
        f"{describe(inner[0])} is in the body of another node, where onnxruntime's 8-bit kernels "
        "saturate in every session on CPUs without VNNI: only the reference session is compared"
    )
    return ("reference",), [note]


def _tolerance(source: Model, table: QParamTable, kind: Kind) -> Tolerance:
    """The tolerated difference: next to nothing in the reference session, which is the proof.

    Optimised sessions are compared to find gross faults. An integer kernel rounds sums while the
    float graph rounds products, so a value between two codes may become either, and so may the
    values computed from it. With b bits such a flip is 2^-b of a tensor's range. If it comes from
    the coarsest tensor, of c bits, it is 2^(f - c) steps of the finest one, of f bits. Four flips
    that add up are still rounding: 4 * 2^(f - c) steps. (An output without a step: 10 % with 8
    bits, twice that for each bit less.)

    With 2 bits that allows any code. But flips are rare, faults are not: the average over an
    output may not exceed a sixteenth of the range at any width: 2^f / 16 steps (at least
    one), or 1/8 of the largest magnitude.

    A network may amplify flips beyond any such limit. Then each kernel is judged by itself, see
    `onnxq.proof.kernels`: integer kernels are off by 0.005 steps before rounding, since they round
    biases to int32 codes, faults by half a step and more.

    The same holds for float16 models, which onnxruntime rounds at places that depend on the
    surrounding nodes.
    """
    half = any(n.inputs[1].dtype == np.float16 for n in source.nodes(FAKE_QUANTIZE))
    if kind == "reference" and not half:
        return _SAME
    bits = [_bits(row) for row in table.of(Role.ACTIVATION)] or [8]
    coarsest, finest = min(bits), max(bits)
    flip = 2.0 ** (finest - coarsest)
    return Tolerance(
        max_steps=4 * flip,
        max_moved=1.0,
        max_relative=min(1.0, 0.1 * 2.0 ** max(0, 8 - coarsest)),
        max_mean_steps=max(1.0, 2.0**finest / 16),
        max_mean_relative=1 / 8,
        max_fine_steps=_FINE_STEPS,
        max_unexplained=_UNEXPLAINED_HALF if half else _UNEXPLAINED,
    )


def _bearable(source: Model, table: QParamTable) -> Tolerance:
    """The tolerated cost of moved quantizers: on average a sixteenth of the range.

    Single elements may be further off, since rounding differently is the purpose. But if the
    outputs differ more than that on average, the effect of training is lost. The range is the span
    of the outputs, since a grid may extend much further than its values. Steps are those of the
    source, which may have more bits than what it was moved to.
    """
    rows = [*table.of(Role.ACTIVATION), *map(params_of, source.nodes(FAKE_QUANTIZE))]
    bits = [_bits(row) for row in rows if row.role is Role.ACTIVATION] or [8]
    return Tolerance(
        max_steps=math.inf,
        max_moved=1.0,
        max_relative=math.inf,
        max_mean_steps=2.0 ** max(bits) / 16,
        max_mean_relative=1 / 16,
        max_mean_spread=1 / 16,
    )


def _bits(row: QParams) -> int:
    """The number of bits that the codes need: 0..15 are 4 bits, whatever type stores them."""
    assert row.lo is not None
    assert row.hi is not None
    return row.qtype.bits if row.qtype.floating else (row.hi - row.lo).bit_length()


def _kernels_off(report: Report) -> list[str]:
    """Notes on integer kernels that are off by more than one step, though within their limit."""
    return [
        f"onnxruntime's integer kernels are up to {o.max:.3g} steps off at '{o.name}' "
        f"({o.mean:.2g} on average; the limit is {o.tolerance.max_steps:.3g}): they round sums, "
        "the float graph rounds products"
        for o in report.outputs
        if o.unit == "steps" and o.max > 1 and o.passed
    ]


def _saturation(deployed: Trusted) -> list[str]:
    """A warning if onnxruntime's default session gives other numbers on this CPU."""
    try:
        off = saturation(deployed)
    except OnnxqError as error:
        return [f"onnxruntime's default session does not run the model: {error.what}"]
    if off is None:
        return []
    return [
        f"onnxruntime's default session is off by {off.max:.3g} {off.unit} at '{off.name}' on this "
        "CPU: its 8-bit kernels saturate. Run with session.x64quantprecision=1, or deploy to a CPU "
        "with VNNI"
    ]


def table_told(whole: QParamTable, read: QParamTable, weights: bool) -> QParamTable:
    """The table that a side file specifies; `weights`: whether the format can contain weights.

    A row that names no consumers is for all of them, as in other tools that read the file. Only
    rows that the format cannot contain come from the converted graph: biases, and the weights of
    formats for activations. Any other row must be in the file.
    """
    found = {row.tensor for row in read}
    rows = read.of(Role.ACTIVATION, Role.WEIGHT)
    if not weights:
        rows += [row for row in whole.of(Role.WEIGHT) if row.tensor not in found]
    return QParamTable(rows + whole.of(Role.BIAS), read.logarithmic)
