"""A quantized model taken apart into a clean model and a side file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from onnxq.analysis.float_graph import FloatGraph
from onnxq.backend import TableFile, find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.discovery import find_pass
from onnxq.errors import BackendError, LoadError, OptionError, SaveError
from onnxq.graph import Model, load
from onnxq.pipeline import Pipeline
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files.side_file import SideFile, formats
from onnxq.workflows import demo
from onnxq.workflows.convert import convert
from onnxq.workflows.side_export import export_side_file
from passes.collect_qparams import CollectQParams
from passes.unify_scales import UnifyScales
from tests.models.build import parse, quantize, weight
from tests.models.canonical import Canonical, canonical_models

NET = """g (float[1,2] x) => (float[1,3] y) <float[2,3] w = {1,-2,3,-4,5,-6}>
    { y = MatMul(x, w) }"""


def net(**activation: object) -> Model:
    model = quantize(parse(NET), "x", **activation)
    return weight(model, "w", scale=np.full(3, 0.05, np.float32), axis=1, lo=-127)


def test_files_and_proof(tmp_path: Path) -> None:
    done = export_side_file(demo.quantize(demo.build()), "aimet-1.0.0", stem="demo")
    assert done.proven
    assert [p.what for p in done.proofs] == ["aimet-1.0.0 (read back)"]
    written = done.save(tmp_path)
    assert [p.name for p in written] == ["demo_float.onnx", "demo_aimet-1.0.0.json"]
    assert not load(written[0]).nodes(FAKE_QUANTIZE)
    assert len(load(written[0]).qparams) == 0, "what the file says is in the file alone"
    document = done.to_json()
    assert document["files"] == [str(p) for p in written]
    assert document["proven"]


def test_weights_use_all_codes_where_that_moves_none() -> None:
    done = export_side_file(net(), "aimet-2.0.0")
    assert done.proven
    assert [(row.tensor, row.lo) for row in done.table] == [("x", -128), ("w", -128)]
    assert done.notes == []
    kept = export_side_file(net(), "onnxq")
    assert [row.lo for row in kept.table] == [-128, -127]


def test_an_activation_that_gains_a_code_is_told() -> None:
    done = export_side_file(net(lo=-127), "aimet-0.6.1")
    assert any("-127..127 -> -128..127" in note for note in done.notes)


def test_what_no_encoding_holds_is_refused() -> None:
    with pytest.raises(SaveError, match=r"'x': codes 0\.\.100"):
        export_side_file(net(qtype="uint8", lo=0, hi=100), "aimet-1.0.0")


def test_a_model_without_quantizers() -> None:
    with pytest.raises(BackendError, match="no quantizers"):
        export_side_file(parse(NET), "onnxq")
    with pytest.raises(OptionError, match="unknown format 'aimet'"):
        export_side_file(net(), "aimet")


def test_not_verified_is_not_proven() -> None:
    assert not export_side_file(net(), "onnxq", verify=False).proven


def test_a_format_that_loses_a_row_is_caught() -> None:
    forgetful = SideFile("f", "forgets", lambda table, model: "", lambda text, model: QParamTable())
    with pytest.raises(LoadError, match="f: tensor 'x' was written but not read back"):
        export_side_file(net(), forgetful)


def test_a_format_that_lies_is_not_proven() -> None:
    def read(text: str, model: Model) -> QParamTable:
        table = QParamTable.from_json(json.loads(text))
        return QParamTable([row.with_(scale=row.scale * 3) for row in table])

    liar = SideFile("liar", "lies", lambda table, model: table.dumps(), read)
    assert not export_side_file(net(), liar).proven


@settings(max_examples=25, deadline=None)
@given(canonical_models())
def test_the_neutral_format_holds_every_model_exactly(found: Canonical) -> None:
    read = [q for t in FloatGraph(found.model).quantized for q in t.quantizers]
    if not read:
        return
    (proof,) = export_side_file(found.model, "onnxq", count=1).proofs
    assert all(diff.max == 0 for diff in proof.report.outputs)


@settings(max_examples=25, deadline=None)
@given(canonical_models())
def test_encodings_hold_a_model_or_name_what_they_cannot(found: Canonical) -> None:
    read = [q for t in FloatGraph(found.model).quantized for q in t.quantizers]
    if not read:
        return
    try:
        done = export_side_file(found.model, "aimet-2.0.0", count=1)
    except SaveError as error:
        named = re.findall(r"^ +'(.*?)': ", error.what, re.MULTILINE)
    else:
        named = []
        if not done.notes:  # no activation gained a code
            assert all(diff.max == 0 for diff in done.proofs[0].report.outputs)
    table = Pipeline(UnifyScales(), CollectQParams()).run(found.model).model.qparams
    known = {row.tensor for row in table}
    assert set(named) <= known


def test_weights_beyond_a_narrow_range_are_not_widened() -> None:
    """The weight -6 is 127.5 steps of 2/42.5 and more: code -127 of the narrow range, else -128."""
    model = quantize(parse(NET), "x")
    model = weight(model, "w", scale=np.full(3, 6 / 128, np.float32), axis=1, lo=-127)
    with pytest.raises(SaveError, match=r"'w': codes -127\.\.127"):
        export_side_file(model, "aimet-1.0.0")
    assert export_side_file(model, "onnxq").proven


def in_bytes(table: QParamTable, model: Model) -> bytes:
    return b"\xff" + table.dumps().encode()


BINARY = SideFile(
    "bytes",
    "a table in bytes",
    in_bytes,
    lambda data, model: QParamTable.loads(data[1:].decode()),
    recognises=lambda data: data[:1] == b"\xff",
    detection="its first byte is 255",
    binary=True,
    suffix=".bin",
)


def test_a_binary_format_is_written_and_proven(tmp_path: Path) -> None:
    done = export_side_file(net(), BINARY, stem="net")
    assert done.proven
    path = done.save(tmp_path)[1]
    assert path.name == "net_bytes.bin"
    assert path.read_bytes()[:1] == b"\xff"
    assert BINARY.accepts(path.read_bytes())


def test_a_backend_may_have_a_binary_side_file(tmp_path: Path) -> None:
    base = find_backend("tensorrt")
    beside = "_deploy_model.onnx"
    backend = replace(base, outputs=(*base.outputs[:2], TableFile("_q.bin", BINARY, beside)))
    done = convert(net(), backend, stem="net")
    assert done.proven
    assert [p.what for p in done.proofs][-1] == "q.bin (read back)"
    assert done.save(tmp_path)[-1].read_bytes()[:1] == b"\xff"


def test_what_a_side_file_says_of_weights_is_proven_too() -> None:
    def lies(data: bytes, model: Model) -> QParamTable:
        rows = QParamTable.loads(data[1:].decode())
        return QParamTable(
            [row.with_(scale=row.scale * 9) if row.role == "weight" else row for row in rows]
        )

    base = find_backend("tensorrt")
    output = TableFile("_q.bin", replace(BINARY, read=lies), "_deploy_model.onnx")
    done = convert(net(), replace(base, outputs=(*base.outputs[:2], output)))
    assert [p.passed for p in done.proofs] == [True, False]


def test_names_survive() -> None:
    done = export_side_file(demo.quantize(demo.build()), "aimet-1.0.0", verify=False)
    clean = done.artifacts[0].content
    assert isinstance(clean, Model)
    names = {c.name for n in demo.build().nodes() for c in (*n.inputs, *n.outputs)}
    assert {row.tensor for row in done.table} <= names
    assert {c.name for n in clean.nodes() for c in (*n.inputs, *n.outputs)} == names


# -- tensors whose readers differ -----------------------------------------------------------------

FIRST, SECOND = Reader("a", 0), Reader("b", 0)
UNEQUAL: dict[str, list[tuple[float, tuple[Reader, ...] | None]]] = {
    "one reader of two": [(0.125, (FIRST,))],
    "a grid for each": [(0.125, (FIRST,)), (0.5, (SECOND,))],
    "two in a row": [(0.125, None), (0.5, None)],
    "a second for one": [(0.125, None), (0.5, (SECOND,))],
}
HELD = {
    "onnxq": list(UNEQUAL),
    "mqbench-nnie": ["one reader of two", "a grid for each"],
    "ppq-mnn": ["one reader of two", "a grid for each"],
}
"""Formats that tell readers apart: what they hold; the others refuse all of it."""
REASONS = r"quantizers|its consumers|quantized twice|no int8 layer"
NARROW = ("ncnn-table", "mqbench-stpu", "ppq-mnn")


def two_readers(name: str, quantizers: list[tuple[float, tuple[Reader, ...] | None]]) -> Model:
    """Two layers that read x through these quantizers, on the grids that a format has."""
    model = parse(
        """g (float[1,2,4,4] x) => (float[1,2,4,4] a, float[1,2,4,4] b)
        <float[2,2,1,1] v = {0.5,-0.5,0.25,0.125}, float[2,2,1,1] w = {0.25,0.5,-0.5,0.125}> {
            [first] a = Conv(x, v)
            [second] b = Conv(x, w)
        }"""
    )
    rows = [("x", scale, readers, Role.ACTIVATION) for scale, readers in quantizers]
    rows += [(weight, 2.0**-7, None, Role.WEIGHT) for weight in "vw"]
    if name == "mqbench-nnie":
        logs = [LogParams(t, 64 * scale, role, readers) for t, scale, readers, role in rows]
        model.qparams = QParamTable(logarithmic=logs)
    else:
        lo, zero = (-127 if name in NARROW else -128), np.zeros(())
        model.qparams = QParamTable(
            [
                QParams(t, qtype("int8"), np.array(scale), zero, lo=lo, readers=readers, role=role)
                for t, scale, readers, role in rows
            ]
        )
    return Pipeline(find_pass("apply-qparams")()).run(model).model


@pytest.mark.parametrize("name", sorted(formats()))
def test_readers_that_differ_are_told_by_the_file_or_refused(name: str) -> None:
    whole = export_side_file(two_readers(name, [(0.125, None)]), name)
    assert whole.proven or whole.format.magnitudes
    for case, quantizers in UNEQUAL.items():
        model = two_readers(name, quantizers)
        if case in HELD.get(name, ()):
            assert export_side_file(model, name).proven
        else:
            with pytest.raises(SaveError, match=REASONS):
                export_side_file(model, name)


def test_a_format_for_activations_is_not_written_for_weights_alone() -> None:
    model = weight(parse(NET), "w")
    with pytest.raises(SaveError, match="no activation of the model has a quantizer"):
        export_side_file(model, "tensorrt-cache")
    assert export_side_file(model, "onnxq").proven
