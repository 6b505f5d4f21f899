"""ncnn on its own files: whole networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.graph import Model, from_proto, load
from onnxq.pipeline import Pipeline
from onnxq.running import sessions
from onnxq.running.sessions import Session
from passes.fold_sizes import FoldSizes
from passes.infer_shapes import InferShapes
from passes.phases import CLEAN, FOLD_SYMMETRIC
from tests.checks.tables import TableRow
from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written
from tests.models import real_models, vision_networks
from tests.models.foreign_files import FOLDER

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("ncnn", "make test-consumers installs it")
    run = python("run_ncnn.py")
    found = record(
        measure("ncnn", version, written("ncnn"), network, run, tmp_path, suffix=".ncnn.param")
    )
    assert found.max_steps <= 1


Feed = dict[str, np.ndarray]


def steps_off(values: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference, in 1/127 of the largest magnitude."""
    step = max(np.abs(w).max() for w in wanted) / 127
    pairs = zip(values, wanted, strict=True)
    return max(float(np.abs(v.reshape(w.shape) - w).max() / step) for v, w in pairs)


def check(
    name: str,
    model: Model | Path,
    real: Session | None,
    feeds: list[Feed],
    folder: Path,
    table_row: TableRow,
) -> None:
    """Convert, run in ncnn and compare with the reference session.

    A sum in the middle between two codes is rounded to either of them, as the last bit of a float
    product decides; from there the difference spreads through all the layers after it. Both
    networks are then as far from the float one, `real`, as quantization takes them: the sum of both
    distances is the most they differ.
    """
    done = onnxq.convert(model, "ncnn", data=feeds[:1], allow_requantize=real is None)
    assert done.proven
    done.stem = "m"
    done.save(folder)
    keyed = {f"{key}/{i}": value for i, feed in enumerate(feeds) for key, value in feed.items()}
    packed, plain = (
        python("run_ncnn.py", *layout)(folder / "m.ncnn.param", keyed, [], folder).values
        for layout in ((), ("plain",))
    )
    exact = sessions.reference(folder / "m_qdq.onnx")
    for output in [o.name for o in exact.outputs]:
        wanted = [exact.run(feed)[output] for feed in feeds]
        found = {
            layout: steps_off([made[f"{output}/{i}"] for i in range(len(feeds))], wanted)
            for layout, made in (("packed", packed), ("plain", plain))
        }
        cost = 1.0
        if real is not None:
            cost = steps_off([real.run(feed)[output] for feed in feeds], wanted)
        table_row(
            "whole networks in ncnn, in steps of 1/127 of the largest output",
            network=name,
            output=output,
            packed=round(found["packed"], 3),
            plain=round(found["plain"], 3),
            **{"quantization itself": round(cost, 3) if real is not None else "-"},
        )
        assert max(found.values()) <= 1 + 2 * cost, found


@pytest.mark.parametrize("network", vision_networks.NETWORKS)
def test_published_layout(network: str, tmp_path: Path, table_row: TableRow) -> None:
    version_of("ncnn", "make test-consumers installs it")
    model = vision_networks.quantized(network, find_backend("ncnn"))
    real = sessions.reference(from_proto(vision_networks.exported(network)))
    (given,) = model.graph.inputs
    feeds = [{given.name: image} for image in vision_networks.images(2, seed=5)]
    check(network, model, real, feeds, tmp_path, table_row)


OTHER_TOOLS = [
    *("brevitas-qcdq-int8", "esp-ppq-ort-qdq", "modelopt-int8-max", "mqbench-classic-qlinear"),
    *("mqbench-head-tensorrt", "nncf-performance", "onnxsim-static-qdq", "ort-qdq-mixed-u8-u16"),
]


@pytest.mark.parametrize("name", OTHER_TOOLS)
def test_other_tools(name: str, tmp_path: Path, table_row: TableRow) -> None:
    """Files that other tools quantized, moved onto ncnn's grids."""
    version_of("ncnn", "make test-consumers installs it")
    file = FOLDER / "A1" / name / "model.onnx"
    if not file.is_file():
        pytest.skip(f"{file} is not there: it is one of the files beside the repository")
    with np.load(FOLDER / "A1" / "calib.npz") as calib:
        rows = calib[calib.files[0]]
    (given,) = load(file).graph.inputs
    feeds = [{given.name: rows[i : i + 1].astype(np.float32)} for i in range(2)]
    check(name, file, None, feeds, tmp_path, table_row)


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("ocr-cls", (1, 3, 48, 192)),
        ("orientation", (1, 3, 224, 224)),
        ("captcha-det", (1, 3, 416, 416)),
        ("dnsmos-sig", (1, 901, 161)),
        ("pdnsmos", (1, 144160)),
    ],
)
def test_real_network(
    name: str, shape: tuple[int, ...], tmp_path: Path, table_row: TableRow
) -> None:
    """Text, orientation and object detectors, and audio networks, at one fixed size."""
    version_of("ncnn", "make test-consumers installs it")
    proto = at_fixed_size(real_models.load(name), shape)
    real = sessions.reference(from_proto(proto))
    rng = np.random.default_rng(0)
    (given,) = real.inputs
    feeds = [{given.name: rng.normal(size=shape).astype(np.float32)} for _ in range(2)]
    clean = Pipeline(*CLEAN, FoldSizes(), InferShapes(), *CLEAN, *FOLD_SYMMETRIC)
    model = clean.run(from_proto(proto)).model
    quantized = vision_networks.placed(model, find_backend("ncnn"), feeds)
    check(name, quantized, real, feeds, tmp_path, table_row)


def at_fixed_size(proto: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The network for inputs of one size; sizes of outputs as they then are."""
    constants = {t.name for t in proto.graph.initializer}
    (given,) = (i for i in proto.graph.input if i.name not in constants)
    for dim, size in zip(given.type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    made = sessions.reference(from_proto(proto)).run({given.name: np.zeros(shape, np.float32)})
    for output in proto.graph.output:
        for size in made[output.name].shape:
            output.type.tensor_type.shape.dim.add().dim_value = size
    return proto
