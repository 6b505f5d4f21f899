"""The proof of a conversion: what was written, read back and run against what came in.

A model is run as written. A side file is read back and applied to the clean model beside it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.backend import TableFile
from onnxq.discovery import find_pass
from onnxq.edit import describe
from onnxq.errors import OnnxqError
from onnxq.fake_quantize import FAKE_QUANTIZE
from onnxq.graph import load
from onnxq.pipeline import Pipeline
from onnxq.qparam_table import QParamTable
from onnxq.qparams import Role
from onnxq.runtime import Kind
from onnxq.verify import Report, saturates, verify

if TYPE_CHECKING:
    from onnxq.convert import Conversion, Progress
    from onnxq.samples import Data


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


def prove(
    conversion: Conversion, data: Data | None, count: int, seed: int, progress: Progress
) -> tuple[Proof, ...]:
    """Write everything to a temporary folder, read it back and compare."""
    proofs: list[Proof] = []
    with tempfile.TemporaryDirectory(prefix="onnxq-") as name:
        folder = Path(name)
        written = {}
        for artifact in conversion.artifacts:
            written[artifact.suffix] = artifact.write(folder, "model")[0]
        first = conversion.artifacts[0]
        for kind in _sessions(conversion):
            progress(f"proving {first.suffix.lstrip('_')} in onnxruntime ({kind} session)")
            report = verify(
                conversion.source,
                written[first.suffix],
                data,
                sessions=("reference", kind),
                count=count,
                seed=seed,
                **_tolerance(conversion, kind),
            )
            ran = report.sessions[1]
            refused = "" if ran == kind else f"onnxruntime refuses the {kind} session"
            proofs.append(Proof(f"{first.suffix.lstrip('_')} ({ran})", report, refused))
        if "deployed" in conversion.backend.sessions:
            conversion.notes += _saturation(written[first.suffix], data)
        for output in conversion.backend.outputs:
            if not isinstance(output, TableFile):
                continue
            progress(f"proving {output.suffix.lstrip('_')} by reading it back")
            model = load(written[output.beside])
            text = written[output.suffix].read_text(encoding="utf-8")
            read = output.format.read(text, model)
            model.qparams = _restored(model.qparams, read)
            restored = Pipeline(find_pass("apply-qparams")()).run(model).model
            report = verify(
                conversion.source,
                restored,
                data,
                count=count,
                seed=seed,
                **_tolerance(conversion, "reference"),
            )
            proofs.append(Proof(f"{output.suffix.lstrip('_')} (read back)", report))
    return tuple(proofs)


def _sessions(conversion: Conversion) -> tuple[Kind, ...]:
    """The sessions to compare in, with a note on what must be left out."""
    wanted = conversion.backend.sessions
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


def _tolerance(conversion: Conversion, kind: Kind) -> dict[str, Any]:
    """What may differ: next to nothing in the reference session, rounding in integer kernels.

    An integer kernel rounds sums where the float graph rounds products, so any value may land on a
    neighbouring code, and deep networks carry that on. Four steps, or 10 % where an output has no
    step (more with fewer bits), is rounding; beyond that something is wrong. The same holds for
    float16 models, which onnxruntime rounds here or there depending on what stands around.
    """
    half = any(n.inputs[1].dtype == np.float16 for n in conversion.source.nodes(FAKE_QUANTIZE))
    if kind == "reference" and not half:
        return {}
    bits = min((row.qtype.bits for row in conversion.table.of(Role.ACTIVATION)), default=8)
    return {
        "max_steps": 4.0,
        "max_moved": 1.0,
        "max_relative": min(1.0, 0.1 * 2.0 ** max(0, 8 - bits)),
    }


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


def _restored(whole: QParamTable, read: QParamTable) -> QParamTable:
    """The table with its activations as a side file tells them.

    Side files have ranges but no readers: these, and the weights, come from the converted graph.
    """
    found = {row.tensor: row for row in read}
    return QParamTable(
        [
            found[row.tensor].with_(readers=row.readers)
            if row.role is Role.ACTIVATION and row.tensor in found
            else row
            for row in whole
        ]
    )
