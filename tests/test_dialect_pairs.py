"""Every dialect to every other: what is read back is the same table and computes the same."""

from __future__ import annotations

import functools

import pytest

from onnxq import runtime
from onnxq.backend import Backend
from onnxq.discovery import find_backend
from onnxq.graph import Model
from onnxq.qparams import QParams, Role
from onnxq.verify import verify
from tests.build import bit_equal
from tests.dialects import WRITERS, read, table, written
from tests.networks import quantized, samples
from tests.tables import TableRow

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
        left, right = runtime.reference(model), runtime.reference(through)
        for feed in feeds:
            assert bit_equal(left.run(feed).values(), right.run(feed).values())
        same = "0"
    if name == "conv, uint8":
        table_row("dialect to dialect: rows of the table kept, largest difference",
                  source=first, target=second, rows=len(table(model)), difference=same)  # fmt: skip
