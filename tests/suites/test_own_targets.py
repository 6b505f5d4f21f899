"""A tool's own files for its own target need no option, and are proven.

The files lie beside the repository (`../shared/fixtures`) and are not part of it.
`python -m tests.checks.own_targets` prints the same as a table.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.backend import find_backend
from onnxq.cli.commands import app
from onnxq.errors import LoadError
from onnxq.graph import load
from onnxq.proof.verify import verify
from onnxq.quant.qparams import Role
from onnxq.reading import canonical
from onnxq.running import sessions
from onnxq.workflows.convert import Conversion
from onnxq.workflows.encodings import with_encodings
from onnxq.workflows.fit_to_backend import fit
from tests.checks.own_targets import Case, quantized_models, side_files
from tests.checks.tables import TableRow
from tests.models.foreign_files import FOLDER

MODELS, SIDE_FILES = quantized_models(), side_files()
pytestmark = pytest.mark.skipif(not MODELS, reason="no ../shared/fixtures beside the repository")

CHANGES = {
    "openvino": {"drop-summed-quantizers"},  # a Conv is summed in the accumulator of an Add
    "nnie": {"drop-unwritable-quantizers"},  # its file has no place for some inputs
    "tensorrt": {"widen-range"},  # the code -128
    "ppl-cuda": {"widen-range", "share-quantizers"},
    "rknn": {"share-quantizers"},  # one range per tensor
    "tengine": {"share-quantizers"},
    "ncnn": {"invertible-scales"},  # the last bit of a scale, so that its inverse reads back
}
"""What targets change on their own. Everything else computes what the tool's file computes."""


def check(case: Case, done: Conversion, inputs: str, table_row: TableRow) -> None:
    assert done.proofs
    names = {trace.name for trace in done.change.traces} if done.change else set()
    outputs = [o for p in done.proofs for o in p.report.outputs if p.what != "requantized (cost)"]
    table_row(
        "files of other tools for their own targets",
        file=case.name,
        inputs=inputs,
        steps=max((o.max for o in outputs if o.unit == "steps"), default=0.0),
        relative=max((o.max for o in outputs if o.unit == "relative"), default=0.0),
        changed=", ".join(sorted(names)),
    )
    failed = [(p.what, p.refused, p.report.to_json()) for p in done.proofs if not p.passed]
    assert done.proven, failed
    assert names <= CHANGES.get(case.backend, set())
    assert not [f for f in done.findings if f.severity == "error"]


@pytest.mark.parametrize("case", [c for c in (*MODELS, *SIDE_FILES) if c.backend], ids=str)
def test_it_is_converted_and_proven(case: Case, table_row: TableRow) -> None:
    check(case, case.convert(), "random", table_row)
    check(case, case.convert(case.data), "its own", table_row)


def test_every_side_file_beside_a_float_model_is_among_them() -> None:
    tried = {case.encodings for case in SIDE_FILES}
    found = {
        path
        for path in FOLDER.glob("*/*/*")
        if path.suffix not in (".onnx", ".npz", ".espdl") and path.name != "meta.json"
    }
    assert tried <= found
    # PPQ's QDQ files carry their quantization: what it says beside them is for its own use, and
    # ESP-DL's have no ONNX file.
    assert not [p for p in found - tried if not qdq(p)]
    assert len(tried) >= 40


def qdq(path: Path) -> bool:
    """Whether the ONNX file of a folder, if there is one, carries its quantization."""
    model = path.parent / "model.onnx"
    return not model.exists() or bool(load(model).nodes("QuantizeLinear"))


@pytest.mark.parametrize("case", SIDE_FILES, ids=str)
def test_inspect_takes_what_convert_takes(case: Case) -> None:
    done = CliRunner().invoke(app, ["inspect", str(case.model), "--encodings", str(case.encodings)])
    assert done.exit_code == 0, done.output


def test_a_file_of_another_model_is_refused_by_both() -> None:
    first, second = (FOLDER / m / "aimet-w8a8-htp73" for m in ("A1", "A2"))
    model, beside = second / "float_with_encodings.onnx", first / "encodings_2.0.0.json"
    with pytest.raises(LoadError, match="in the file, not in the graph"):
        with_encodings(load(model), beside)
    with pytest.raises(LoadError, match="in the file, not in the graph"):
        onnxq.convert(model, "qnn", encodings=beside)


def test_what_is_left_out_is_told_and_refused_if_strict() -> None:
    path = FOLDER / "A1" / "mqbench-classic-tensorrt" / "mqbench_m_clip_ranges.json"
    (case,) = (c for c in SIDE_FILES if c.encodings == path)
    done = case.convert()
    assert "9 weights without a range:" in done.notes
    with pytest.raises(LoadError, match="9 weights without a range"):
        onnxq.convert(case.model, case.backend, encodings=path, strict=True)
    with_weights = onnxq.convert(
        case.model, case.backend, encodings=path, strict=True, weights="max"
    )
    assert with_weights.proven
    assert len(with_weights.table.of(Role.WEIGHT)) == 9


@pytest.mark.parametrize("network", ["A1", "A2"])
def test_weights_with_a_zero_point_reach_qnn_as_they_are(network: str) -> None:
    """The codes and zero points that onnxruntime chose for QNN are those in the written files."""
    path = FOLDER / network / "ort-qdq-qnn-u16u8" / "model.onnx"
    source = canonical(load(path))[0]
    (done,) = (c.convert() for c in MODELS if c.model == path and c.backend == "qnn")
    weights = [row for row in done.table.of(Role.WEIGHT) if str(row.qtype) == "uint8"]
    assert any(row.zero_point.any() for row in weights)
    x = np.load(path.parent.parent / "test.npz")["x"]
    session, written = sessions.reference(source), sessions.reference(done.model)
    (spec,) = session.inputs
    for i in range(len(x)):
        feed = {spec.name: x[i : i + 1].astype(spec.dtype)}
        for mine, theirs in zip(
            written.run(feed).values(), session.run(feed).values(), strict=True
        ):
            assert np.abs(mine - theirs).max() <= 1e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("network", ["A1", "A2"])
def test_float8_reaches_tensorrt_as_it_is(network: str) -> None:
    path = FOLDER / network / "modelopt-fp8" / "model.onnx"
    (done,) = (c.convert() for c in MODELS if c.model == path)
    assert {str(row.qtype) for row in done.table} == {"float8e4m3fn"}
    assert [a.suffix for a in done.artifacts] == ["_qdq.onnx"], "ranges cannot contain float8"
    assert any("not written" in note for note in done.notes)
    x = np.load(path.parent.parent / "test.npz")["x"]
    theirs, mine = sessions.reference(load(path)), sessions.reference(done.model)
    (spec,) = theirs.inputs
    for i in range(len(x)):
        feed = {spec.name: x[i : i + 1].astype(spec.dtype)}
        got, want = (np.concatenate([*s.run(feed).values()], None) for s in (mine, theirs))
        # One of 8 codes per octave may flip where a norm is folded.
        assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


def test_the_code_minus_128_is_all_that_tensorrt_changes() -> None:
    """On the inputs that MQBench was calibrated with, of which some go beyond -127 steps."""
    path = FOLDER / "A1" / "mqbench-classic-tensorrt" / "model.onnx"
    source = canonical(load(path))[0]
    (spec,) = sessions.reference(source).inputs
    x = np.load(path.parent.parent / "calib.npz")["x"]
    data = [{spec.name: x[i : i + 1].astype(spec.dtype)} for i in range(len(x))]
    done = onnxq.convert(path, "tensorrt", data=data)
    assert done.proven
    assert done.change is not None
    assert [trace.name for trace in done.change.traces] == ["widen-range"]
    assert done.cost is not None
    assert 1e-3 < done.cost.outputs[0].max < 1 / 127
    fitted = fit(source, find_backend("tensorrt"))
    assert fitted.widened is not None
    exact = verify(fitted.widened.after, done.model, data).worst
    plain = verify(source, fitted.widened.before, data).worst
    assert exact is not None
    assert plain is not None
    assert exact.max <= 1e-6
    assert plain.max <= 1e-6, "what comes before it changes nothing"
