"""Splits a quantized model into a clean float model and a side file with its quantization.

    any dialect -> canonical -> table + float model -> side file
                      |                                    |
                      '----------- compared ------ read back and applied

The proof reads the file back, applies it to the clean model and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.canonical.quantizers import QUANTIZERS
from onnxq.errors import LoadError
from onnxq.graph import Model, load
from onnxq.graph.constants import array
from onnxq.parsing.argument_types import INTEGER, PATH, takes
from onnxq.pipeline import Pipeline
from onnxq.proof.prove import Proof, table_told
from onnxq.proof.verify import verify as compare
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.reading import canonical
from onnxq.side_files.side_file import SideFile, find_format
from onnxq.workflows.artifacts import Artifact, MadeFiles
from onnxq.workflows.read_source import unquantized, unread
from onnxq.workflows.write_outputs import check_clean
from passes.apply_qparams import ApplyQParams
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant
from passes.unify_scales import UnifyScales
from passes.widen_range import WidenRange

if TYPE_CHECKING:
    from onnxq.running.samples import Data


@dataclass(kw_only=True, repr=False)
class SideExport(MadeFiles):
    """A clean model and its side file, before they are written."""

    format: SideFile

    def _what(self) -> str:
        return f"{self.stem} as {self.format.name}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"format": self.format.name} | super().to_json()


@takes(
    source=(Model, *PATH),
    side_file=(str, SideFile),
    stem=(str, None),
    count=INTEGER,
    seed=INTEGER,
    progress=Callable,
)
def export_side_file(
    source: Model | str | Path,
    side_file: str | SideFile,
    *,
    data: Data | None = None,
    verify: bool = True,
    stem: str | None = None,
    count: int = 4,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> SideExport:
    """Export the quantization of a model of any dialect as a side file next to a clean model."""
    if isinstance(side_file, str):
        side_file = find_format(side_file)
    if not isinstance(source, Model):
        progress(f"reading {source}")
        stem = stem or Path(source).stem
        source = load(source)
    progress("taking the quantizers out")
    before, read = canonical(source)
    if not before.nodes(*QUANTIZERS):
        raise unquantized(before, read)
    whole = () if side_file.narrow else (WidenRange(),)
    result = Pipeline(UnifyScales(), *whole, CollectQParams(), RemoveFakeQuant()).run(before)
    clean, notes = result.model, unread(before, read)
    check_clean(clean, "_float.onnx")
    table = clean.qparams
    if not side_file.narrow:
        parts = TensorParts(clean)
        table = QParamTable([_whole(row, parts) for row in table], table.logarithmic)
        ends = next(t for t in result.traces if t.name == "widen-range")
        notes += ends.rewrites
    if not side_file.weights and table.of(Role.WEIGHT, Role.BIAS):
        notes.append(f"{side_file.name} contains activations only: weights are not in the file")
    content = side_file.write_some(table, clean)
    clean.qparams = QParamTable()
    done = SideExport(
        format=side_file,
        stem=stem or "model",
        table=table,
        artifacts=(
            Artifact("_float.onnx", "clean float model", clean),
            Artifact(f"_{side_file.name}{side_file.suffix}", side_file.summary, content),
        ),
        traces=(*read, *result.traces),
        notes=notes,
    )
    if verify:
        progress(f"proving {side_file.name} by reading it back")
        again = clean.clone()
        held = side_file.read_table(content, clean)
        _check_whole(table, held, side_file)
        again.qparams = table_told(table, held, side_file.weights)
        applied = Pipeline(ApplyQParams()).run(again, in_place=True).model
        report = compare(before, applied, data, count=count, seed=seed)
        done.proofs = (Proof(f"{side_file.name} (read back)", report),)
    return done


def _whole(row: QParams, parts: TensorParts) -> QParams:
    """`row` with all codes of its type if that changes no code: the values of weights are known."""
    value = array(parts.find(row.tensor)) if row.role is Role.WEIGHT else None
    if value is None or not row.is_narrow or row.qtype.floating:
        return row
    wide = row.with_(lo=row.qtype.lo, hi=row.qtype.hi)
    return row if (wide.quantize(value) != row.quantize(value)).any() else wide


def _check_whole(table: QParamTable, read: QParamTable, side_file: SideFile) -> None:
    """Reject a file that lacks tensors when it is read back."""
    found = {row.tensor for row in read}
    roles = (Role.ACTIVATION, Role.WEIGHT) if side_file.weights else (Role.ACTIVATION,)
    lost = [row.tensor for row in table.of(*roles) if row.tensor not in found]
    if lost:
        raise LoadError(
            f"{side_file.name}: tensor '{lost[0]}' was written but not read back",
            fix="report this with the file: a format must read what it writes",
        )
