"""Float16 models in float32: the same numbers, less rounding, the same inputs and outputs."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.single_precision import in_single_precision, without_idle_casts
from tests.models.build import parse, run, tensor

HALF = """g (float16[2,4] x) => (float16[2,3] y, float[2,4] z)
    <float16[4,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
    {
        h = Cast<to=10>(x)
        u = MatMul(h, w)
        y = Relu(u)
        z = Cast<to=1>(x)
    }"""


def test_a_float16_model() -> None:
    model = parse(HALF)
    rng = np.random.default_rng(0)
    weight = tensor(model, "w").values
    assert weight.dtype == np.float16
    made = model.clone()
    assert in_single_precision(made)
    x = rng.normal(size=(2, 4)).astype(np.float16)
    y, z = run(made, x)
    wanted = np.maximum(x.astype(np.float64) @ weight.astype(np.float64), 0)
    assert (y.dtype, z.dtype) == (np.float16, np.float32)
    np.testing.assert_array_equal(y, wanted.astype(np.float32).astype(np.float16))
    np.testing.assert_array_equal(z, x.astype(np.float32))
    assert [t.name for t in (*made.graph.inputs, *made.graph.outputs)] == ["x", "y", "z"]
    inner = {t.dtype for n in made.nodes("MatMul", "Relu") for t in (*n.inputs, *n.outputs)}
    assert inner <= {np.dtype(np.float32), None}


def test_others_are_left() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    before = model.to_proto().SerializeToString()
    assert not in_single_precision(model)
    assert model.to_proto().SerializeToString() == before


def test_bodies_are_searched_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """Asking a body for an attribute that it lacks makes graphsurgeon print an error."""
    model = parse(
        """g (float[2] x, bool c) => (float[2] y) {
            y = If <then_branch = t () => (float[2] a) { a = Relu(x) },
                    else_branch = e () => (float[2] b) { b = Neg(x) }> (c)
        }"""
    )
    assert not in_single_precision(model)
    out = capfd.readouterr()
    assert (out.out, out.err) == ("", "")


def test_casts_that_wider_types_leave_behind() -> None:
    model = parse(HALF)
    x = np.linspace(-1, 1, 8, dtype=np.float16).reshape(2, 4)
    assert in_single_precision(model)
    wanted = run(model, x)
    without_idle_casts(model)
    kept = {(n.inputs[0].dtype, n.attrs["to"]) for n in model.nodes("Cast")}
    assert kept == {(np.dtype(np.float16), 1), (np.dtype(np.float32), 10)}
    for one, other in zip(run(model, x), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert [t.name for t in (*model.graph.inputs, *model.graph.outputs)] == ["x", "y", "z"]
