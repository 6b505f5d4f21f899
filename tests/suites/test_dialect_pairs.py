"""Every dialect to every other: what is read back is the same table and computes the same."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.backend import Backend, find_backend
from onnxq.graph import Model, from_proto
from onnxq.proof.verify import verify
from onnxq.quant.qparams import QParams, Role
from onnxq.running import sessions
from tests.checks.tables import TableRow
from tests.models.build import bit_equal
from tests.models.dialects import WRITERS, read, table, written
from tests.models.networks import quantized, samples

MODELS = {
    "conv, uint8": ("resnet", "onnxruntime"),
    "conv, int8": ("unet", "tensorrt"),
    "transformer": ("transformer", "onnxruntime"),
    "low bits": ("conv1d", "academic"),
}
"""Name: network and the backend whose quantization it has."""


@functools.cache
def source(name: str) -> Model:
    network, backend = MODELS[name]
    found = find_backend(backend)
    assert isinstance(found, Backend)
    return read(quantized(network, found))


@functools.cache
def as_read(name: str, dialect: str) -> Model:
    return read(written(source(name), dialect))


def kept(model: Model) -> list[QParams]:
    """The rows of weights and activations: QLinearConv has rounded biases, other dialects not."""
    rows = table(model).of(Role.ACTIVATION, Role.WEIGHT)
    return sorted(rows, key=lambda row: row.tensor)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("second", WRITERS)
@pytest.mark.parametrize("first", WRITERS)
def test_a_pair_of_dialects_keeps_the_table(
    first: str, second: str, name: str, table_row: TableRow
) -> None:
    model = source(name)
    through = read(written(as_read(name, first), second))
    assert kept(through) == kept(model)
    network, _ = MODELS[name]
    feeds = samples(network, 2)
    if "qoperator" in (first, second):
        report = verify(model, through, feeds)
        assert report.passed, report.to_json()
        assert report.worst is not None
        same = f"{report.worst.max:.2g} {report.worst.unit}"
    else:
        left, right = sessions.reference(model), sessions.reference(through)
        for feed in feeds:
            assert bit_equal(left.run(feed).values(), right.run(feed).values())
        same = "0"
    if name == "conv, uint8":
        table_row("dialect to dialect: rows of the table kept, largest difference",
                  source=first, target=second, rows=len(table(model)), difference=same)  # fmt: skip


PARAMETERS = ("Quant", "Dequant", "FakeQuantize", "Learnable", "QLinear", "QGemm", "Div", "Mul")
"""Words in the operators whose constants, behind the first input, are scales, bounds and such."""


def _computed(proto: onnx.ModelProto) -> int:
    """Have every float parameter of a file computed, half of it times two; returns how many."""
    floats = {t.name: t for t in proto.graph.initializer if t.data_type == TensorProto.FLOAT}
    read = {name for n in proto.graph.node for name in n.input[:1]}
    found = {
        name
        for node in proto.graph.node
        if any(word in node.op_type for word in PARAMETERS)
        for name in node.input[1:]
        if name in floats and name not in read
    }
    for name in sorted(found):
        tensor = floats[name]
        half = numpy_helper.to_array(tensor) / np.float32(2)  # exact: scales are far from 0
        made = helper.make_node("Mul", [f"{name}.half", "two"], [name])
        proto.graph.node.insert(0, made)
        proto.graph.initializer.append(numpy_helper.from_array(half, f"{name}.half"))
        proto.graph.initializer.remove(tensor)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(2), "two"))
    return len(found)


@pytest.mark.parametrize("dialect", sorted(set(WRITERS) - {"canonical"}))
def test_parameters_may_be_computed_from_constants(dialect: str) -> None:
    """Exporters leave arithmetic on scales, zero points and bounds in the graph."""
    file = written(source("conv, uint8"), dialect)
    want = kept(read(file))
    proto = file.to_proto()
    assert _computed(proto) >= len(want)
    assert kept(read(from_proto(proto))) == want
