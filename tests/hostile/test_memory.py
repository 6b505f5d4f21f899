"""Memory follows what is touched: no weight is made to be described, no size is believed.

What is counted is what numpy and Python allocate. A weight of 8 MB stands for one of 576 MB, of
which `inspect` once made 11 GB and `convert` 17 GB.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.arrays import pieces
from onnxq.canonical.fake_quantize import function
from onnxq.errors import InvalidModelError, LoadError, OnnxqError, VerifyError
from onnxq.graph import from_proto, load
from onnxq.graph.dequantized import DequantizedValues
from onnxq.pipeline import Pipeline
from onnxq.proof.verify import verify
from onnxq.storage import model_files
from onnxq.workflows.explain import explain
from onnxq.workflows.lint_model import lint
from onnxq.workflows.summary import summarize
from tests.hostile import FOLDER

hostile = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="no ../shared/hostile beside the repository"
)
ROWS, COLUMNS = 2048, 4096
MEGABYTE = 1 << 20
FORMS = ("tensor", "channel", "zero point", "block", "int4", "uint8", "pair", "canonical")


class Peak:
    """The most that was allocated at once, in MB."""

    megabytes = 0.0


@contextmanager
def measured() -> Iterator[Peak]:
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
    finally:
        peak.megabytes = tracemalloc.get_traced_memory()[1] / MEGABYTE
        tracemalloc.stop()


def large(folder: Path, form: str, rows: int = ROWS, columns: int = COLUMNS) -> Path:
    """A MatMul whose weight lies in a data file, with uint8 activations."""
    rng = np.random.default_rng(0)
    kind = {"int4": TensorProto.INT4, "uint8": TensorProto.UINT8}.get(form, TensorProto.INT8)
    shape, attrs = {
        "channel": ((columns,), {"axis": 1}),
        "block": ((rows // 32, columns), {"axis": 0, "block_size": 32}),
        "pair": ((columns,), {"axis": 1}),
        "canonical": ((columns,), {"axis": 1}),
    }.get(form, ((), {}))
    scale = rng.uniform(0.001, 0.002, shape).astype(np.float32)
    zero = {"zero point": 3, "uint8": 128}.get(form, 0)
    zeros = helper.make_tensor("wz", kind, shape, np.full(scale.size, zero))
    floats = form in ("pair", "canonical")
    stored = TensorProto.FLOAT if floats else kind
    with (folder / "w.bin").open("wb") as file:
        for _ in range(rows):
            codes = rng.integers(0, 255, columns, dtype=np.uint8)
            if floats:
                file.write((codes.view(np.int8) * np.float32(0.0007)).tobytes())
            else:
                file.write((codes[: columns // 2] if form == "int4" else codes).tobytes())
    weight = TensorProto(name="w", data_type=stored, dims=[rows, columns])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    readers: dict[str, list[Any]] = {
        "pair": [("QuantizeLinear", "w", "wq", ""), ("DequantizeLinear", "wq", "wd", "")],
        "canonical": [("FakeQuantize", "w", "wd", "onnxq")],
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
    ]
    for op, source, made, domain in readers.get(form, [("DequantizeLinear", "w", "wd", "")]):
        ends = {"quant_min": -127, "quant_max": 127} if domain else {}
        nodes.append(
            helper.make_node(op, [source, "ws", "wz"], [made], domain=domain, **attrs, **ends)
        )
    nodes.append(helper.make_node("MatMul", ["xd", "wd"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, columns])],
        [
            numpy_helper.from_array(np.float32(0.05), "xs"),
            numpy_helper.from_array(np.uint8(128), "xz"),
            numpy_helper.from_array(scale, "ws"),
            *(zeros, weight),
        ],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("onnxq", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[function(21)])
    path = folder / "large.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: DequantizedValues) -> None:
        raise AssertionError("a weight was made that nobody needs")

    monkeypatch.setattr(DequantizedValues, "load", load)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("unread")
def test_what_describes_a_model_makes_no_weight(form: str, tmp_path: Path) -> None:
    path = large(tmp_path, form)
    describe: list[Callable[[], object]] = [
        lambda: summarize(load(path)),
        lambda: explain(load(path), "wd"),
        lambda: lint(load(path), "onnxruntime"),
    ]
    summarize(load(path))  # whatever is imported at the first call is not counted
    for action in describe:
        with measured() as peak:
            action()
        assert peak.megabytes < 16  # blocks and scales; the floats alone would be 32


@pytest.mark.parametrize(
    ("form", "backend"),
    [
        *((form, "onnxruntime") for form in FORMS),
        *((form, "tensorrt") for form in ("tensor", "uint8", "pair")),
        *((form, "openvino") for form in ("channel", "uint8", "canonical")),
    ],
)
def test_a_conversion_makes_no_weight_in_memory(
    form: str,
    backend: str,
    tmp_path: Path,
    table_row: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_files, "_ONE_FILE", MEGABYTE)  # small beside this weight
    path = large(tmp_path, form)
    with measured() as peak:
        onnxq.convert(path, backend, verify=False).save(tmp_path / "out")
    table_row(
        "memory of a conversion, weight of 8 MB",
        form=form,
        backend=backend,
        peak=f"{peak.megabytes:.0f} MB",
    )
    assert peak.megabytes < 24


def test_a_conversion_in_pieces_writes_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in FORMS:
        folder = tmp_path / form
        folder.mkdir()
        path = large(folder, form, 64, 96)
        made = []
        for size in (1 << 18, 100):
            monkeypatch.setattr(pieces, "PIECE", size)
            (file,) = onnxq.convert(path, "onnxruntime", verify=False).save(folder / str(size))[:1]
            proto = onnx.load(file)
            for tensor in proto.graph.initializer:  # in one file or in two
                tensor.ClearField("data_location")
                tensor.ClearField("external_data")
            made.append(proto.SerializeToString(deterministic=True))
        assert made[0] == made[1], form


def test_a_proof_of_codes_that_were_never_floats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", 100)
    for form in FORMS:
        folder = tmp_path / form
        folder.mkdir()
        report = onnxq.convert(large(folder, form, 64, 96), "onnxruntime").report
        assert report is not None
        assert report.passed, form
        assert [output.max for output in report.outputs] == [0.0], form


# -- sizes that are not believed ----------------------------------------------------------------


@hostile
@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("sparse_huge", InvalidModelError, "'const_42': its dense form, .* 34359738368 bytes"),
        ("e_neg_dims", InvalidModelError, "negative dimension"),
        ("e_overflow_dims", LoadError, "do not match a tensor of 18446744073709551616 bytes"),
        ("e_string_type", LoadError, "strings cannot be external data"),
        ("fuzz_04", InvalidModelError, "an index is outside shape"),
        ("fuzz_05", InvalidModelError, "an index is outside shape"),
        ("fuzz_07", InvalidModelError, "255 values have indices of shape"),
        ("fuzz_11", InvalidModelError, "23 values have indices of shape"),
    ],
)
def test_tensors_that_cannot_be_are_refused_when_the_model_is_read(
    name: str, error: type[OnnxqError], why: str
) -> None:
    with measured() as peak, pytest.raises(error, match=why):
        load(FOLDER / f"{name}.onnx")
    assert peak.megabytes < 8


@hostile
def test_random_samples_of_a_huge_input_are_refused() -> None:
    path = FOLDER / "huge_in.onnx"
    with (
        measured() as peak,
        pytest.raises(VerifyError, match=r"'x' .* the limit for random values"),
    ):
        verify(path, path)
    assert peak.megabytes < 64


@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.INT4, TensorProto.FLOAT])
def test_data_that_do_not_fill_large_dims_are_refused(kind: int) -> None:
    weight = TensorProto(name="w", data_type=kind, dims=[1 << 20, 1 << 20], raw_data=b"1234")
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", kind, None)],
        [weight],
    )
    with measured() as peak, pytest.raises(InvalidModelError, match=r"'w': .* its data has 4"):
        from_proto(helper.make_model(graph))
    assert peak.megabytes < 1


@pytest.mark.parametrize("dims", [[1 << 20, 1 << 20], [1 << 32, 1 << 32], [1 << 40, 1 << 24, 3]])
@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile"])
def test_constants_that_would_be_huge_are_not_computed(op: str, dims: list[int]) -> None:
    shape = numpy_helper.from_array(np.array(dims, np.int64), "shape")
    one = numpy_helper.from_array(np.ones([1] * len(dims), np.float32), "one")
    inputs = ["shape"] if op == "ConstantOfShape" else ["one", "shape"]
    graph = helper.make_graph(
        [
            helper.make_node(op, inputs, ["c"]),
            helper.make_node("QuantizeLinear", ["x", "c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [shape, one][: len(inputs)] if op == "ConstantOfShape" else [one, shape],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with measured() as peak:
        made = Pipeline.parse("fold-constants").run(from_proto(proto)).model
    assert [n.op for n in made.nodes()] == [op, "QuantizeLinear"]
    assert peak.megabytes < 8
