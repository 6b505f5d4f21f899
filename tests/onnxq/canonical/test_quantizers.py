"""Both kinds of canonical quantizers: made from rows, read as rows, taken out and put back."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.quantizers import QUANTIZERS, Row, is_quantizer, make, row_of
from onnxq.edit import insert
from onnxq.errors import PassError
from onnxq.graph import Model, from_proto
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from passes.apply_qparams import ApplyQParams
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant
from tests.models.build import apply, bit_equal, log_quantize, parse, quantize, run, tensor

X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
LINEAR = QParams("x", qtype("int8"), np.array(0.1), np.array(3))
LOGARITHMIC = LogParams("x", 2.5)


def net() -> Model:
    return parse(
        """g (float[2,4] x) => (float[2,3] y, float[2,4] r)
        <float[4,3] w = {1, -0.3, 0.2, 0.7, -1, 0.01, 0.3, 0.4, -0.5, 2, 1, 0.1}>
        { r = Relu(x) n = Neg(r) s = Add(n, x) y = MatMul(s, w) }"""
    )


@pytest.mark.parametrize("row", [LINEAR, LOGARITHMIC])
def test_a_row_comes_back(row: Row) -> None:
    model = net()
    insert(model, tensor(model, "x"), lambda x, y, g: make(model, x, y, row, g))
    (node,) = model.nodes(*QUANTIZERS)
    assert is_quantizer(node)
    assert row_of(node) == row
    changes = {"role": Role.WEIGHT, "readers": (Reader("y", 0),)}
    assert row_of(node, "t", **changes) == row.with_(tensor="t", **changes)


def test_constants_are_weights() -> None:
    (node,) = log_quantize(net(), "w", 1.0).nodes(*QUANTIZERS)
    assert row_of(node).role is Role.WEIGHT


def test_others_are_none() -> None:
    assert not any(is_quantizer(node) for node in net().nodes())
    assert not is_quantizer(None)


def test_rows_collected_removed_and_applied_again_compute_the_same() -> None:
    model = log_quantize(net(), "x", 1.7)
    log_quantize(model, "w", 1.5)
    log_quantize(model, "r", 0.9)  # also leaves the network
    quantize(model, "s")
    before = run(model, X)
    clean, _ = apply(model, CollectQParams(), RemoveFakeQuant())
    assert not clean.nodes(*QUANTIZERS)
    table = clean.qparams
    assert [(row.tensor, row.role) for row in table.logarithmic] == [
        ("x", Role.ACTIVATION),
        ("r", Role.ACTIVATION),
        ("w", Role.WEIGHT),
    ]
    assert [row.tensor for row in table] == ["s"]
    stored = from_proto(clean.to_proto())
    assert stored.qparams == table
    again, trace = apply(stored, ApplyQParams())
    assert len(trace.rewrites) == 4
    assert bit_equal(run(again, X), before)
    assert apply(again, CollectQParams())[0].qparams == table
    twice, trace = apply(again, ApplyQParams())
    assert len(trace.skips) == 4
    assert len(twice.nodes(*QUANTIZERS)) == 4


def test_rows_of_some_readers() -> None:
    model = net()
    model.qparams.logarithmic.append(LogParams("r", 1.1, readers=(Reader("n", 0),)))
    made, _ = apply(model, ApplyQParams())
    (node,) = made.nodes(*QUANTIZERS)
    assert [reader.op for reader in node.outputs[0].outputs] == ["Neg"]
    collected, _ = apply(made, CollectQParams())
    assert collected.qparams == model.qparams


def test_both_kinds_in_a_row_are_refused() -> None:
    model = quantize(log_quantize(net(), "n", 1.0), "n")
    with pytest.raises(PassError, match="'n' is quantized linearly and logarithmically"):
        apply(model, CollectQParams())
