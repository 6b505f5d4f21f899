"""Grids of producers and consumers, put together as rows."""

from __future__ import annotations

from onnxq.analysis.tensor_roles import TensorParts
from onnxq.graph import Model, from_proto
from onnxq.quant.qparams import Reader
from onnxq.side_files.operator_rows import OperatorRows
from tests.models.zoo_build import Build
from tests.onnxq.formats.check import row

LEFT, RIGHT = Reader("left", 0), Reader("right", 0)


def network(*, leaves: bool = False) -> Model:
    """`m` has two readers, and may leave the network besides."""
    b = Build()
    made = b.op("Abs", b.input("x", [1, 4]), out="m")
    results = [b.op("Relu", made, out="left"), b.op("Neg", made, out="right")]
    return from_proto(b.model(*results, *([made] if leaves else [])))


def found(*, leaves: bool = False) -> OperatorRows:
    return OperatorRows(TensorParts(network(leaves=leaves)))


def test_readers_that_agree_with_the_maker_have_no_row() -> None:
    rows = found()
    rows.read(row("m", scale=0.5), LEFT)
    rows.make(row("m", scale=0.5))
    rows.read(row("m", scale=0.25), RIGHT)
    assert rows.table().rows == [row("m", scale=0.5), row("m", scale=0.25, readers=(RIGHT,))]


def test_all_readers_that_agree_are_one_row() -> None:
    rows = found()
    rows.read(row("m"), LEFT)
    rows.read(row("m"), RIGHT)
    assert rows.table().rows == [row("m")]


def test_readers_that_differ_have_a_row_each() -> None:
    rows = found()
    rows.read(row("m", scale=0.5), LEFT)
    rows.read(row("m", scale=0.25), RIGHT)
    assert [(r.scale, r.readers) for r in rows.table()] == [(0.5, (LEFT,)), (0.25, (RIGHT,))]


def test_readers_with_the_same_grid_share_a_row() -> None:
    rows = found(leaves=True)
    rows.read(row("m"), LEFT)
    rows.read(row("m"), RIGHT)
    assert rows.table().rows == [row("m", readers=(LEFT, RIGHT))]


def test_a_reader_without_a_grid_sees_the_tensor_as_it_is() -> None:
    rows = found()
    rows.read(row("m"), LEFT)
    assert rows.table().rows == [row("m", readers=(LEFT,))]


def test_what_leaves_the_network_is_not_rounded_by_its_readers() -> None:
    rows = found(leaves=True)
    rows.read(row("m"), LEFT, RIGHT)
    assert rows.table().rows == [row("m", readers=(LEFT, RIGHT))]


def test_a_tensor_that_the_graph_lacks_keeps_its_row() -> None:
    rows = found()
    rows.make(row("nowhere"))
    assert rows.table().rows == [row("nowhere")]
