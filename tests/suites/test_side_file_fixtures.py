"""Side files of other tools, read with their float model and compared with the same tool's QDQ.

The files lie beside the repository (`../shared/fixtures`) and are not part of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.analysis.tensor_roles import TensorParts
from onnxq.discovery import find_pass
from onnxq.errors import LoadError
from onnxq.graph import Model, load
from onnxq.graph.constants import array
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.reading import canonical
from onnxq.running import sessions
from onnxq.workflows.encodings import read_all, with_encodings
from tests.models.foreign_files import FOLDER

AIMET = sorted(FOLDER.glob("*/aimet-*/encodings_*.json"))
MQBENCH = sorted(FOLDER.glob("*/mqbench-*/mqbench_m_clip_ranges.json"))
SNPE = [p for p in MQBENCH if "snpe" in p.parent.name]
TENSORRT = [p for p in MQBENCH if "tensorrt" in p.parent.name]

pytestmark = pytest.mark.skipif(not AIMET, reason="no ../shared/fixtures beside the repository")


def name(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.parent.name}/{path.stem}"


def float_model(path: Path) -> Path:
    """The clean model of a fixture; some variants share that of their neighbour."""
    own = path.parent / "float_with_encodings.onnx"
    return own if own.exists() else path.parent.parent / "aimet-w8a8-htp73" / own.name


def deploy_model(path: Path) -> Path:
    """The clean model of MQBench, kept for its older branch alone: tensor names are the same."""
    classic = path.parent.name.replace("-head-", "-classic-")
    return path.parent.parent / classic / "mqbench_m_deploy_model.onnx"


def qdq_table(path: Path) -> dict[str, QParams]:
    model = canonical(load(path.parent / "model.onnx"))[0]
    table = Pipeline(find_pass("collect-qparams")()).run(model).model.qparams
    return {row.tensor: row for row in table}


def unsigned(row: QParams) -> QParams:
    """The same grid with codes from 0 up: tools choose the sign of activations freely."""
    if not row.qtype.signed or row.role is not Role.ACTIVATION:
        return row
    assert row.lo is not None
    assert row.hi is not None
    return row.with_(
        qtype=qtype(f"u{row.qtype.name}"),
        zero_point=row.zero_point - row.lo,
        lo=0,
        hi=row.hi - row.lo,
    )


def assert_same(one: QParams, other: QParams, ulps: int) -> None:
    left, right = unsigned(one), unsigned(other)
    bits = [row.scale.reshape(-1).view(np.int32).astype(np.int64) for row in (left, right)]
    assert np.abs(bits[0] - bits[1]).max() <= ulps, one.tensor
    fixed = left.with_(scale=right.scale, role=right.role, readers=right.readers)
    assert fixed == right, one.tensor


def outputs(model: Model | Path, path: Path) -> list[np.ndarray]:
    session = sessions.reference(model)
    (spec,) = session.inputs
    x = np.load(path.parent.parent / "test.npz")["x"]
    return [
        value
        for i in range(len(x))
        for value in session.run({spec.name: x[i : i + 1].astype(spec.dtype)}).values()
    ]


@pytest.mark.parametrize("path", AIMET, ids=map(name, AIMET))
def test_aimet_encodings_say_what_the_qdq_of_the_same_tool_says(path: Path) -> None:
    clean = load(float_model(path))
    given = read_all([path], clean)
    version = path.stem.partition("_")[2]
    assert [f.name for f in given.formats] == [f"aimet-{version}"]
    qdq = qdq_table(path)
    rows = given.table.of(Role.ACTIVATION, Role.WEIGHT)
    assert len(rows) >= 20
    for row in rows:
        assert_same(row, qdq[row.tensor], ulps=0)
    # Weights are all there; what is not is a value that was moved, on the grid it came from.
    assert {t for t, r in qdq.items() if r.role is Role.WEIGHT} <= {r.tensor for r in rows}
    model, _ = with_encodings(clean, path)
    for mine, theirs in zip(
        outputs(model, path), outputs(path.parent / "model.onnx", path), strict=True
    ):
        assert mine.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("path", AIMET, ids=map(name, AIMET))
def test_aimet_encodings_are_written_as_they_were_read(path: Path) -> None:
    clean = load(float_model(path))
    given = read_all([path], clean)
    (side_file,) = given.formats
    again = side_file.read(side_file.write(given.table, clean), clean)
    key = [(row.tensor, row.grid_key(), row.qtype) for row in given.table]
    assert sorted(key, key=str) == sorted(
        ((row.tensor, row.grid_key(), row.qtype) for row in again), key=str
    )


@pytest.mark.parametrize("path", [p for p in AIMET if "w8a8" in name(p)], ids=name)
def test_aimet_encodings_convert(path: Path) -> None:
    assert onnxq.convert(float_model(path), "onnxruntime", encodings=path).proven


@pytest.mark.parametrize("path", SNPE, ids=map(name, SNPE))
def test_snpe_ranges_say_what_the_model_says(path: Path) -> None:
    clean = load(deploy_model(path))
    given = read_all([path], clean)
    assert [f.name for f in given.formats] == ["mqbench-snpe"]
    assert len(given.table) == 16
    roles = {row.tensor: row.role for row in given.table}
    assert [t for t, role in roles.items() if role is Role.WEIGHT] == ["up.weight"]
    trained = qdq_table(path)
    copied = {"/gap/GlobalAveragePool_output_0", "/fc/Gemm_output_0"}
    for row in given.table:
        # MQBench copies ranges over Flatten, and has its own name for the network output.
        if row.tensor not in copied:
            assert_same(row, trained[row.tensor], ulps=1)
    with_encodings(clean, path)


@pytest.mark.parametrize("path", TENSORRT, ids=map(name, TENSORRT))
def test_tensorrt_ranges_are_taken_as_tensorrt_takes_them(path: Path) -> None:
    clean = load(deploy_model(path))
    given = read_all([path], clean)
    assert [f.name for f in given.formats] == ["tensorrt-ranges"]
    trained = qdq_table(path)
    assert len(given.table) == 13
    for row in given.table:
        # Trained on -127..127, so that MQBench's scale * max(-lo, hi) is what TensorRT expects;
        # its range is copied over Flatten.
        if row.tensor != "/gap/GlobalAveragePool_output_0":
            bits = [r.scale.reshape(-1).view(np.int32) for r in (row, trained[row.tensor])]
            assert abs(int(bits[0][0]) - int(bits[1][0])) <= 1
    done = onnxq.convert(clean, "tensorrt", encodings=path, weights="max")
    assert done.proven


def test_files_of_one_model_do_not_fit_another() -> None:
    first, second = (FOLDER / m / "aimet-w8a8-htp73" for m in ("A1", "A2"))
    with pytest.raises(LoadError) as caught:
        with_encodings(load(first / "float_with_encodings.onnx"), second / "encodings_2.0.0.json")
    for text in ("in the file, not in the graph", "in the graph, without a range", "weights"):
        assert text in caught.value.what


def test_a_file_of_unknown_form_is_refused_by_name() -> None:
    path = FOLDER / "A1" / "esp-ppq-qnn" / "meta.json"
    with pytest.raises(LoadError, match=r"meta\.json: not a side file in a known format"):
        read_all([path], load(FOLDER / "A1" / "float.onnx"))


PPQ = {
    **{f"{m}/esp-ppq-qnn/config.json": "ppq-qnn" for m in ("A1", "A2")},
    **{f"{m}/esp-ppq-pplcuda/config.json": "ppl-nn" for m in ("A1", "A2")},
    **{f"{m}/esp-ppq-rknn/config.json": "ppq" for m in ("A1", "A2")},
    **{f"{m}/esp-ppq-tengine/config.json": "ppq" for m in ("A1", "A2")},
    **{f"{m}/esp-ppq-tengine/config.scale": "tengine-scale" for m in ("A1", "A2")},
    **{f"{m}/esp-ppq-trt-json/config.json": "ppq-tensorrt" for m in ("A1", "A2")},
}
"""Files of PPQ beside a float model, whose weights it has already rounded, and their format."""


@pytest.mark.parametrize(("file", "form"), PPQ.items(), ids=PPQ)
def test_ppq_files_compute_what_ppq_computes(file: str, form: str) -> None:
    path = FOLDER / file
    clean = canonical(load(path.parent / "model.onnx"))[0]
    given = read_all([path], clean)
    assert [f.name for f in given.formats] == [form]
    table = given.table
    if file.startswith("A2") and form != "ppq":
        # PPQ runs LayerNormalization in float, so it reads the input as it is. Files that name
        # tensors alone cannot say so.
        add = Reader("/Add_output_0", 0)
        table = QParamTable([r.with_(readers=(add,)) if r.tensor == "x" else r for r in table])
    model, _ = with_encodings(clean, table, allow_missing=True)
    expected = np.load(path.parent / "expected.npz")
    (want,) = (expected[key] for key in expected)
    mine = np.concatenate(outputs(model, path))
    # For Tengine the last layer of A1 is float: its sums are added in another order.
    most = 1e-6 if file.startswith("A1/esp-ppq-tengine") else 0.0
    assert np.abs(mine - want.reshape(mine.shape)).max() <= most * np.abs(want).max()


@pytest.mark.parametrize(("file", "form"), PPQ.items(), ids=PPQ)
def test_ppq_files_are_written_as_they_were_read(file: str, form: str) -> None:
    path = FOLDER / file
    clean = canonical(load(path.parent / "model.onnx"))[0]
    for node in clean.nodes():
        node.name = node.name or f"n{node.outputs[0].name}"
    given = read_all([path], clean)
    (side_file,) = given.formats
    held = {Role.ACTIVATION, Role.WEIGHT} if side_file.weights else {Role.ACTIVATION}
    rows = [row for row in given.table if row.role in held]
    if any(row.readers is not None for row in rows):
        pytest.skip("a tensor is quantized for some of its readers only")
    again = side_file.read(side_file.write(QParamTable(rows), clean), clean)
    assert sorted(again.rows, key=lambda r: r.tensor) == sorted(rows, key=lambda r: r.tensor)


def test_records_of_ascend_tell_the_layers_of_the_model() -> None:
    path = FOLDER / "A1" / "esp-ppq-ascend" / "config.txt"
    clean = canonical(load(path.parent / "model.onnx"))[0]
    given = read_all([path], clean)
    assert [f.name for f in given.formats] == ["ascend-record"]
    assert len(given.table.of(Role.ACTIVATION)) == len(given.table.of(Role.WEIGHT)) == 8
    parts = TensorParts(clean)
    for row in given.table.of(Role.WEIGHT):
        # PPQ has rounded the weights to these grids already.
        value = array(parts.find(row.tensor))
        assert value is not None
        assert np.abs(row.fake(value) - value).max() <= 1e-6 * np.abs(value).max()
    with_encodings(clean, path, allow_missing=True)


OTHERS = {
    "pplw8a16": ("mqbench_m_clip_ranges.json", "mqbench-ppl", 23),
    "vitis": ("mqbench_m_clip_ranges.json", "mqbench-vitis", 28),
    "tengine-u8": ("mqbench_m_for_tengine.scale", "tengine-scale", 16),
    "pplcuda": ("mqbench_m_clip_ranges.json", "mqbench-ppl-cuda", 15),
}


@pytest.mark.parametrize("branch", ["classic", "head"])
@pytest.mark.parametrize("target", OTHERS)
def test_mqbench_files_say_what_the_model_says(target: str, branch: str) -> None:
    name, form, least = OTHERS[target]
    path = FOLDER / "A1" / f"mqbench-{branch}-{target}" / name
    clean = load(deploy_model(path) if target != "tengine-u8" else tengine_model(path))
    given = read_all([path], clean)
    assert [f.name for f in given.formats] == [form]
    trained = qdq_table(path)
    assert len(given.table) >= (least if branch == "classic" else 15)
    compared = 0
    for row in given.table:
        # Ranges are copied over Flatten, and the network output has a name of its own.
        if row.tensor not in trained or (target, branch) == ("pplw8a16", "head"):
            continue
        compared += 1
        if form == "mqbench-ppl-cuda":
            reach = [np.max(np.abs(r.range)) for r in (row, trained[row.tensor])]
            assert reach[0] == pytest.approx(reach[1], rel=2**-22)
        else:
            assert_same(row, trained[row.tensor], ulps=1)
    assert compared >= 13 or (target, branch) == ("pplw8a16", "head")
    if form != "mqbench-ppl-cuda":
        with_encodings(clean, path, allow_missing=True)


def tengine_model(path: Path) -> Path:
    classic = path.parent.name.replace("-head-", "-classic-")
    return path.parent.parent / classic / "mqbench_m_for_tengine.onnx"


CONVERTED = {
    "snpe": ("snpe", "_clip_ranges.json", 15),
    "pplw8a16": ("ppl", "_clip_ranges.json", 23),
    "pplcuda": ("ppl-cuda", "_clip_ranges.json", 14),
    "tengine-u8": ("tengine", "_for_tengine.scale", 21),
    "vitis": ("vitis", "_clip_ranges.json", 28),
    "tensorrt": ("tensorrt", "_clip_ranges.json", 12),
}


def numbers(path: Path | str) -> dict[str, tuple[float, ...]]:
    """What a file of MQBench or of onnxq says about each tensor, as MQBench's loaders read it."""
    text = path.read_text() if isinstance(path, Path) else path
    if not text.startswith("{"):
        lines = [line.replace(": ", " ").split(" ") for line in text.splitlines()]
        return {name: tuple(map(float, rest)) for name, *rest in lines}
    document = json.loads(text)
    if "tensorrt" in document:
        return {name: (reach,) for name, reach in document["tensorrt"]["blob_range"].items()}
    for key in ("ppl", "vitis"):
        if key in document:
            return {
                name: tuple(v for v in entry.values() if not isinstance(v, str))
                for name, entry in document[key].items()
            }
    groups = document["activation_encodings"] | document["param_encodings"]
    return {name: (entry["min"], entry["max"]) for name, (entry,) in groups.items()}


@pytest.mark.parametrize("target", CONVERTED)
def test_onnxq_writes_the_files_of_mqbench_with_the_same_values(target: str) -> None:
    backend, suffix, least = CONVERTED[target]
    folder = FOLDER / "A1" / f"mqbench-classic-{target}"
    done = onnxq.convert(folder / "model.onnx", backend, stem="mqbench_m")
    assert done.proven
    (mine,) = (numbers(a.content) for a in done.artifacts if a.suffix == suffix)
    theirs = numbers(folder / f"mqbench_m{suffix}")
    # MQBench gives the output of the network another name, takes a ConvTranspose's weight for an
    # activation, and copies the range of a tensor in front of Flatten.
    other = {"/fc/Gemm_output_0", "/gap/GlobalAveragePool_output_0", "up.weight"}
    assert set(theirs) - set(mine) <= other
    shared = set(theirs) & set(mine)
    assert len(shared) >= least
    for name in shared:
        assert mine[name] == pytest.approx(theirs[name], rel=1e-12), name
    models = {a.suffix for a in done.artifacts if not isinstance(a.content, str)}
    assert {p.name.removeprefix("mqbench_m") for p in folder.glob("mqbench_m*.onnx")} <= models
