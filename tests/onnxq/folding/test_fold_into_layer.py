"""What folding does to the graph around a layer."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.edit import read_by
from onnxq.folding.affine import Affine, CannotFold
from onnxq.folding.fold_into_layer import Folding
from onnxq.folding.linear import read_layer
from onnxq.graph import Model, from_proto
from onnxq.pass_ import Trace
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from tests.models.build import ops, run, weight
from tests.models.zoo_build import Build

X = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)


def shared_bias_model() -> Model:
    """Two Conv with one weight and one bias; a Mul by 2 behind the first."""
    b = Build()
    x, w, bias = b.input("x", X.shape), b.weight(3, 3, 1, 1, name="w"), b.init(b.random(3), "bias")
    first = b.op("Mul", b.op("Conv", x, w, bias, out="first"), b.init(np.float32(2)))
    return from_proto(b.model(first, b.op("Conv", x, w, bias, out="second")))


def fold_first(model: Model) -> Trace:
    trace = Trace("test")
    folding = Folding(model, trace)
    conv = model.nodes("Conv")[0]
    folding.behind(read_layer(conv), [model.nodes("Mul")[0]], Affine(2.0, 0.0))
    folding.finish()
    model.sweep()
    model.check()
    return trace


def bias_row(readers: bool, model: Model) -> QParams:
    uses = tuple(read_by(c, 2) for c in model.nodes("Conv")) if readers else None
    return QParams(
        tensor="bias",
        qtype=qtype("int32"),
        scale=np.float32(0.01),
        zero_point=np.zeros(()),
        role=Role.BIAS,
        readers=uses,
    )


def test_shared_constants_are_not_overwritten() -> None:
    model = shared_bias_model()
    before = run(model, X)
    fold_first(model)
    assert ops(model) == ["Conv", "Conv"]
    np.testing.assert_array_equal(run(model, X)[0], before[0])
    np.testing.assert_array_equal(run(model, X)[1], before[1])
    names = {t.name for t in model.to_proto().graph.initializer}
    assert names == {"w", "bias", "w.folded", "bias.folded"}


@pytest.mark.parametrize("named", [False, True])
def test_bias_row_stays_with_the_layer_that_was_not_folded(named: bool) -> None:
    model = shared_bias_model()
    model.qparams.add(bias_row(named, model))
    trace = fold_first(model)
    (row,) = model.qparams
    second = model.nodes("Conv")[1]
    assert row.readers == ((read_by(second, 2),) if named else None)
    assert not trace.notes


@pytest.mark.parametrize("named", [False, True])
def test_bias_row_of_a_folded_bias_is_dropped_with_a_note(named: bool) -> None:
    b = Build()
    conv = b.op("Conv", b.input("x", X.shape), b.weight(3, 3, 1, 1), b.init(b.random(3), "bias"))
    model = from_proto(b.model(b.op("Mul", conv, b.init(np.float32(2)))))
    other = bias_row(False, model).with_(tensor="elsewhere")
    model.qparams.extend([bias_row(named, model), other])
    trace = fold_first(model)
    assert [row.tensor for row in model.qparams] == ["elsewhere"]
    assert "'bias'" in trace.notes[0]
    assert "quantize-bias" in trace.notes[0]


def test_shared_quantizer_gets_a_twin() -> None:
    model = weight(shared_bias_model(), "w", scale=np.float32(0.05))
    before = run(model, X)
    fold_first(model)
    scales = sorted(float(params_of(n).scale) for n in model.nodes(FAKE_QUANTIZE))
    np.testing.assert_allclose(scales, [0.05, 0.1], rtol=1e-6)
    after = run(model, X)
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1], before[1])


def test_a_declined_fold_changes_nothing() -> None:
    model = shared_bias_model()
    before = model.to_proto().SerializeToString(deterministic=True)
    folding = Folding(model, Trace("test"))
    conv, mul = model.nodes("Conv")[0], model.nodes("Mul")[0]
    for step in (Affine(1e39, 0.0), Affine(1.0, 1e39), Affine(float("nan"), 0.0)):
        with pytest.raises(CannotFold):
            folding.behind(read_layer(conv), [mul], step)
    folding.finish()
    assert model.to_proto().SerializeToString(deterministic=True) == before


def test_beta_goes_into_the_new_bias() -> None:
    b = Build()
    x = b.input("x", [2, 4])
    y = b.op("Gemm", x, b.weight(4, 3), b.init(b.random(3)), beta=0.0, alpha=0.5)
    model = from_proto(b.model(b.op("Add", y, b.init(b.random(3)))))
    before = run(model, X[0, 0, :2])
    folding = Folding(model, Trace("test"))
    gemm, add = model.nodes("Gemm")[0], model.nodes("Add")[0]
    shift = add.inputs[1].values.astype(np.float64)
    folding.behind(read_layer(gemm), [add], Affine(1.0, shift))
    assert gemm.attrs == {"alpha": 0.5}
    np.testing.assert_allclose(run(model, X[0, 0, :2])[0], before[0], rtol=1e-6)
