"""Rows that follow from those of Relu, Clip and Concat, and change nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.analysis.implied_ranges import with_implied, without_implied
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from onnxq.proof.verify import verify
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Reader
from passes.apply_qparams import ApplyQParams
from tests.models.zoo_build import Build
from tests.onnxq.formats.check import row

FUNCTIONS = ("Relu", "Clip", "Concat")


def net(function: str = "Relu", *, least: float = 0.0, twice: bool = False) -> Model:
    b = Build()
    c = b.op("Neg", b.input("x", [1, 3, 8, 8]), out="c")
    if function == "Relu":
        y = b.op("Relu", c, out="y")
    elif function == "Clip":
        y = b.op("Clip", c, b.init(np.float32(least)), b.init(np.float32(6)), out="y")
    else:
        y = b.op("Concat", c, b.op("Abs", "x", out="d"), axis=1, out="y")
    outs = [y, b.op("Sin", c, out="z")] if twice else [y]
    return from_proto(b.model(*outs))


def names(table: QParamTable) -> list[str]:
    return [r.tensor for r in table]


@pytest.mark.parametrize(("function", "more"), [("Relu", ["c"]), ("Clip", ["c"])])
def test_what_the_function_reads_gets_its_row(function: str, more: list[str]) -> None:
    table = QParamTable([row("y", scale=0.3, zero=7)])
    found = with_implied(table, net(function), FUNCTIONS)
    assert names(found) == ["y", *more]
    assert found.rows[1] == row("c", scale=0.3, zero=7)
    assert without_implied(found, net(function), FUNCTIONS).rows == table.rows


def test_every_input_of_concat_gets_its_row() -> None:
    assert set(names(with_implied(QParamTable([row("y")]), net("Concat"), FUNCTIONS))) == {
        *("y", "c", "d")
    }


def test_rows_stay_where_nothing_follows() -> None:
    table = QParamTable([row("y")])
    assert with_implied(table, net(twice=True), FUNCTIONS).rows == table.rows
    assert with_implied(table, net("Clip", least=-1.0), FUNCTIONS).rows == table.rows
    assert with_implied(table, net(), FUNCTIONS, layers=("Conv",)).rows == table.rows
    assert with_implied(table, net(), ("Clip",)).rows == table.rows
    own = QParamTable([row("y"), row("c", scale=0.7)])
    assert with_implied(own, net(), FUNCTIONS).rows == own.rows
    assert without_implied(own, net(), FUNCTIONS).rows == own.rows


@given(
    st.sampled_from(FUNCTIONS),
    st.sampled_from([0.3, 0.024, 1 / 3, 0.5]),
    st.integers(0, 255),
    st.integers(0, 2**31),
)
def test_they_change_no_number(function: str, scale: float, zero: int, seed: int) -> None:
    table = QParamTable([row("y", scale=scale, zero=zero)])
    made = []
    for found in (table, with_implied(table, net(function), FUNCTIONS)):
        model = net(function)
        model.qparams = found
        made.append(Pipeline(ApplyQParams()).run(model).model)
    values = np.random.default_rng(seed).normal(0, 6, (1, 3, 8, 8))
    feed = {"x": np.concatenate([values.ravel()[:-3], [-6.0, 6.0, -0.0]]).reshape(1, 3, 8, 8)}
    report = verify(made[0], made[1], [{"x": feed["x"].astype(np.float32)}])
    assert all(o.max == 0 for o in report.outputs)


def test_rows_for_some_readers_imply_nothing() -> None:
    some = QParamTable([row("y", readers=(Reader("w", 0),))])
    assert with_implied(some, net(), FUNCTIONS).rows == some.rows
    both = QParamTable([row("c"), *some])
    assert without_implied(both, net(), FUNCTIONS).rows == both.rows
    read = QParamTable([row("y"), row("c", readers=(Reader("y", 0),))])
    assert with_implied(read, net(), FUNCTIONS).rows == read.rows
