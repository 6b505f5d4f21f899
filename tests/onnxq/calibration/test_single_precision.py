"""Float16 models computed in float32: types, values and bodies."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.single_precision import in_single_precision
from tests.models.build import parse, run


def test_results_are_those_of_float32_and_types_at_the_border_stay() -> None:
    half = parse(
        """g (float16[2,3] x) => (float16[2,3] y)
        <float[3] v = {0.5, 0.25, 3.0}> {
            w = Cast<to=10>(v)
            a = Mul(x, w)
            b = Add(a, w)
            y = Sqrt(b)
        }"""
    )
    x = np.abs(np.random.default_rng(0).normal(size=(2, 3))).astype(np.float16)
    w = np.array([0.5, 0.25, 3.0])
    assert in_single_precision(half)
    (y,) = run(half, x)
    assert y.dtype == np.float16
    wide = np.sqrt(x.astype(np.float64) * w + w)
    np.testing.assert_array_equal(y, wide.astype(np.float32).astype(np.float16))


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
