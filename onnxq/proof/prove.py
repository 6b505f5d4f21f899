"""The proof of a conversion: what was written, read back and run against what came in.

A model is run as written. One of operators that onnxruntime does not have, or that round elsewhere
than the float graph does (QLinearConv ...), is read back into the canonical form, which must then
be that of the source; optimised sessions still run it as it is. A side file is read back and
applied to the clean model beside it. A lossy change is no part of a proof: it is measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.backend import OnnxFile, TableFile
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.dialects import openvino, qonnx
from onnxq.disk.file_set import FileSet
from onnxq.disk.scratch import scratch_folder
from onnxq.edit import describe
from onnxq.errors import OnnxqError
from onnxq.graph import Model, domain_of, load
from onnxq.operators.integer_operators import find
from onnxq.pipeline import Pipeline
from onnxq.proof.difference import RunningDiff, Tolerance
from onnxq.proof.verify import Report, saturates, verify
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.running.sessions import Kind
from onnxq.side_files.native_format import models
from passes.apply_qparams import ApplyQParams
from passes.phases import READ

if TYPE_CHECKING:
    from onnxq.running.samples import Data
    from onnxq.workflows.convert import Conversion, Progress


COST = "requantized (cost)"
"""What the proof is called that judges how much moving quantizers cost."""


@dataclass(frozen=True)
class Proof:
    """One comparison of what was written with what was read."""

    what: str
    report: Report
    refused: str = ""
    """Why the runtime would not run the file as asked; nothing is proven then."""

    @property
    def passed(self) -> bool:
        """Whether the file ran as asked and computes what the source does."""
        return self.report.passed and not self.refused

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "what": self.what,
            "refused": self.refused,
            **self.report.to_json(),
            "passed": self.passed,
        }


def prove(
    conversion: Conversion, data: Data | None, count: int, seed: int, progress: Progress
) -> tuple[Proof, ...]:
    """Write everything to a temporary folder, read it back and compare."""
    proofs: list[Proof] = []
    change = conversion.change
    trusted = conversion.source if change is None else change.after
    with scratch_folder() as folder:
        with FileSet(folder, durable=False) as files:
            written = {a.suffix: a.stage(files, "model")[0] for a in conversion.artifacts}
        first = conversion.artifacts[0]
        for kind in _sessions(conversion):
            progress(f"proving {first.suffix.lstrip('_')} in onnxruntime ({kind} session)")
            read = _read_back(written[first.suffix]) if kind == "reference" else None
            run = partial(verify, data=data, count=count, seed=seed)
            made = written[first.suffix] if read is None else read
            report = run(trusted, made, sessions=("reference", kind))
            report = _judged(report, _tolerance(conversion, kind))
            raised = None
            if kind == "reference" and not report.passed:
                raised = _raised(trusted, conversion.model.opset)
            if raised is not None:
                report = _judged(run(raised, made), _tolerance(conversion, kind))
            ran = report.sessions[1]
            refused = "" if ran == kind else f"onnxruntime refuses the {kind} session"
            how = f"{kind}: refused" if refused else ran if read is None else "read back"
            proofs.append(Proof(f"{first.suffix.lstrip('_')} ({how})", report, refused))
            if raised is not None:
                report = _judged(run(trusted, raised), _tolerance(conversion, "deployed"))
                what = f"opset {trusted.opset} -> {raised.opset} (canonical)"
                proofs.append(Proof(what, report))
            if kind != "reference" and not refused:
                conversion.notes += _kernels_off(report)
        if "deployed" in conversion.backend.sessions:
            conversion.notes += _saturation(written[first.suffix], data)
        for output in conversion.backend.outputs:
            if not isinstance(output, TableFile) or output.suffix not in written:
                continue
            progress(f"proving {output.suffix.lstrip('_')} by reading it back")
            model = load(written[output.beside])
            content = output.format.decode(written[output.suffix].read_bytes())
            held = output.format.read(content, model)
            if output.format.magnitudes:
                report = _reaches(model.qparams, held)
                proofs.append(Proof(f"{output.suffix.lstrip('_')} (ranges read back)", report))
                continue
            model.qparams = table_told(model.qparams, held, output.format.weights)
            applied = Pipeline(ApplyQParams()).run(model).model
            report = verify(
                trusted,
                applied,
                data,
                count=count,
                seed=seed,
            )
            report = _judged(report, _tolerance(conversion, "reference"))
            proofs.append(Proof(f"{output.suffix.lstrip('_')} (read back)", report))
        for native, parts in models(conversion.backend.outputs).items():
            progress(f"proving the {native.name} model by reading it back")
            stored = {f.part: f.decode(written[f.suffix].read_bytes()) for f in parts}
            report = verify(trusted, native.read(stored), data, count=count, seed=seed)
            report = _judged(report, _tolerance(conversion, "reference"))
            what = " and ".join(f.suffix.lstrip("_.") for f in parts)
            proofs.append(Proof(f"{what} (read back)", report))
    if change is not None:
        progress("measuring what the changes cost")
        report = verify(conversion.source, change.before, data, count=count, seed=seed)
        proofs.append(Proof("up to the change (canonical)", report))
        conversion.cost = verify(
            conversion.source,
            change.after,
            data,
            count=count,
            seed=seed,
            max_steps=math.inf,
            max_moved=1.0,
            max_relative=math.inf,
        )
        if any(t.name == "approximate-grids" for t in change.traces):
            judged = _judged(conversion.cost, _bearable(conversion))
            proofs.append(Proof(COST, judged))
    return tuple(proofs)


def _raised(trusted: Model, opset: int) -> Model | None:
    """`trusted` in a later opset, None if it is in that one.

    onnxruntime computes some operators (AveragePool) by another kernel from some opset on, which
    rounds the last bit of a sum another way; what lies between two codes may then land on either.
    A file in a later opset than its source is proven against the source in that opset, and what
    the opset alone changes is judged as such flips are.
    """
    if opset <= trusted.opset:
        return None
    twin = trusted.clone()
    twin.require_opset(opset, "that of what was written")
    return twin


_NOT_RUN = (openvino.DOMAIN, qonnx.DOMAIN)
"""Domains whose operators onnxruntime does not have."""


def _read_back(path: Path) -> Model | None:
    """The canonical form of a file whose operators are not those of the float graph, else None."""
    model = load(path)
    if not any(domain_of(n) in _NOT_RUN or find(domain_of(n), n.op) for n in model.nodes()):
        return None
    return Pipeline(*READ).run(model, in_place=True).model


def _reaches(table: QParamTable, read: QParamTable) -> Report:
    """How far the largest magnitudes of a file are from those of the table: one rounding."""
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


def _sessions(conversion: Conversion) -> tuple[Kind, ...]:
    """The sessions to compare in, with a note on what must be left out."""
    wanted = conversion.backend.sessions
    first = conversion.backend.outputs[0]
    if isinstance(first, OnnxFile) and first.clean:
        return ()  # a float model proves nothing: the files beside it are read back
    inner = [
        n for n in conversion.source.nodes(FAKE_QUANTIZE) if n.owner is not conversion.source.graph
    ]
    if not inner or wanted == ("reference",):
        return wanted
    conversion.notes.append(
        f"{describe(inner[0])} stands in the body of another node, where onnxruntime's 8-bit "
        "kernels saturate in every session on CPUs without VNNI: only the reference session is "
        "compared"
    )
    return ("reference",)


def _judged(report: Report, by: Tolerance) -> Report:
    """The report with other limits."""
    return replace(
        report,
        outputs=tuple(replace(o, tolerance=by) for o in report.outputs),
        layers=tuple(replace(o, tolerance=by) for o in report.layers),
    )


def _tolerance(conversion: Conversion, kind: Kind) -> Tolerance:
    """What may differ: next to nothing in the reference session, which is the proof.

    Optimised sessions are compared to find gross faults. An integer kernel rounds sums where the
    float graph rounds products, so a value between two codes may land on either, and what reads
    it goes along. With b bits such a flip is 2^-b of a tensor's range, and where it comes from
    the coarsest tensor, of c bits, it is 2^(f - c) steps of the finest one, of f bits. Four flips
    that add up are still rounding: 4 * 2^(f - c) steps. (An output without a step: 10 % with 8
    bits, twice that for each bit less.)

    With 2 bits that allows any code. But flips are rare, faults are not: the average over an
    output may not exceed a sixteenth of the range at any width: 2^f / 16 steps (one
    at least), or 1/8 of the largest magnitude.

    The same holds for float16 models, which onnxruntime rounds here or there depending on what
    stands around.
    """
    half = any(n.inputs[1].dtype == np.float16 for n in conversion.source.nodes(FAKE_QUANTIZE))
    if kind == "reference" and not half:
        return Tolerance()
    bits = [_bits(row) for row in conversion.table.of(Role.ACTIVATION)] or [8]
    coarsest, finest = min(bits), max(bits)
    flip = 2.0 ** (finest - coarsest)
    return Tolerance(
        max_steps=4 * flip,
        max_moved=1.0,
        max_relative=min(1.0, 0.1 * 2.0 ** max(0, 8 - coarsest)),
        max_mean_steps=max(1.0, 2.0**finest / 16),
        max_mean_relative=1 / 8,
    )


def _bearable(conversion: Conversion) -> Tolerance:
    """What quantizers that had to be moved may cost: on average a sixteenth of the range.

    Single elements may be further off, since rounding differently is the point of it. But where
    the outputs differ more than that on average, what was trained is gone. The range is what the
    outputs span in fact, since a grid may reach much further than its values ever do.
    """
    bits = [_bits(row) for row in conversion.table.of(Role.ACTIVATION)] or [8]
    return Tolerance(
        max_steps=math.inf,
        max_moved=1.0,
        max_relative=math.inf,
        max_mean_steps=2.0 ** max(bits) / 16,
        max_mean_relative=1 / 16,
        max_mean_spread=1 / 16,
    )


def _bits(row: QParams) -> int:
    """How many bits the codes in use take: 0..15 are 4 bits, in whatever type they are stored."""
    assert row.lo is not None
    assert row.hi is not None
    return row.qtype.bits if row.qtype.floating else (row.hi - row.lo).bit_length()


def _kernels_off(report: Report) -> list[str]:
    """A note where integer kernels are further off than one step, though within their limit."""
    return [
        f"onnxruntime's integer kernels are up to {o.max:.3g} steps off at '{o.name}' "
        f"({o.mean:.2g} on average; the limit is {o.tolerance.max_steps:.3g}): they round sums "
        "where the float graph rounds products"
        for o in report.outputs
        if o.unit == "steps" and o.max > 1 and o.passed
    ]


def _saturation(path: Path, data: Data | None) -> list[str]:
    """A warning where onnxruntime's default session gives other numbers on this CPU."""
    try:
        off = saturates(path, data)
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
    """The table as a side file tells it; `weights`: whether the format can hold weights.

    A row that names no readers is for all of them, as whoever else reads the file takes it. Only
    what the format cannot hold comes from the converted graph: biases, and the weights of formats
    for activations. What it could hold and does not tell is not there.
    """
    found = {row.tensor for row in read}
    rows = read.of(Role.ACTIVATION, Role.WEIGHT)
    if not weights:
        rows += [row for row in whole.of(Role.WEIGHT) if row.tensor not in found]
    return QParamTable(rows + whole.of(Role.BIAS), read.logarithmic)
