"""Resize by whole factors as Upsample, bit for bit or not at all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxq.canonical.upsample import UPSAMPLE
from passes.infer_shapes import InferShapes
from passes.resize_to_upsample import ResizeToUpsample
from tests.models.build import apply, parse, reasons, run

COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners"),
    "tf_half_pixel_for_nn",
)
ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
X = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)


def resize(attrs: str, factors: str = "1, 1, 2, 2", opset: int = 19):  # type: ignore[no-untyped-def]
    return parse(
        f"""g (float[1,2,3,4] x) => (float[A,B,C,D] y) <float[4] s = {{{factors}}}>
        {{ y = Resize<{attrs}>(x, , s) }}""",
        opset=opset,
    )


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize(("at", "rounding"), list(itertools.product(COORDINATES, ROUNDING)))
def test_nearest_is_rewritten_exactly_where_it_repeats(at: str, rounding: str, factor: int) -> None:
    before = resize(
        f'mode="nearest", coordinate_transformation_mode="{at}", nearest_mode="{rounding}"',
        f"1, 1, {factor}, {factor}",
    )
    after, trace = apply(before, ResizeToUpsample())
    (want,) = run(before, X)
    (got,) = run(after, X)
    np.testing.assert_array_equal(got, want)
    repeats = np.array_equal(want, X.repeat(factor, 2).repeat(factor, 3))
    assert bool(after.nodes(UPSAMPLE)) == bool(trace.rewrites)
    assert not trace.rewrites or repeats
    # align_corners depends on sizes; for others onnxruntime agrees that nothing was missed.
    assert trace.rewrites or not repeats or at == "align_corners"


@pytest.mark.parametrize("at", COORDINATES)
def test_linear_needs_the_same_coordinates(at: str) -> None:
    before = resize(f'mode="linear", coordinate_transformation_mode="{at}"')
    after, trace = apply(before, ResizeToUpsample())
    assert bool(trace.rewrites) is (at == "asymmetric")
    np.testing.assert_allclose(run(after, X)[0], run(before, X)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("attrs", "factors", "says"),
    [
        ('mode="nearest"', "1, 1, 1.5, 2", "by 1.5"),
        ('mode="nearest"', "1, 1, 0.5, 1", "by 0.5"),
        ('mode="cubic"', "1, 1, 2, 2", "no mode 'cubic'"),
        ('mode="linear", antialias=1', "1, 1, 2, 2", "filters"),
    ],
)
def test_the_rest_stays_with_the_reason(attrs: str, factors: str, says: str) -> None:
    _, trace = apply(resize(attrs, factors), ResizeToUpsample())
    assert says in reasons(trace)


def test_sizes_are_as_good_as_scales() -> None:
    before = parse("""g (float[1,2,3,4] x) => (float[1,2,9,8] y) <int64[4] n = {1, 2, 9, 8}>
        { y = Resize<mode="nearest">(x, , , n) }""")
    after, _ = apply(before, InferShapes(), ResizeToUpsample())
    (node,) = after.nodes(UPSAMPLE)
    np.testing.assert_array_equal(node.inputs[1].values, [1, 1, 3, 2])
    np.testing.assert_array_equal(run(after, X)[0], run(before, X)[0])


def test_axes_name_some_dimensions() -> None:
    before = parse(
        """g (float[1,2,3,4] x) => (float[1,2,6,8] y) <float[2] s = {2, 2}>
        { y = Resize<mode="nearest", axes=[2,3]>(x, , s) }""",
        opset=19,
    )
    after, _ = apply(before, ResizeToUpsample())
    np.testing.assert_array_equal(after.nodes(UPSAMPLE)[0].inputs[1].values, [1, 1, 2, 2])
    np.testing.assert_array_equal(run(after, X)[0], run(before, X)[0])


def test_opset_10_has_no_other_coordinates() -> None:
    before = parse(
        """g (float[1,2,3,4] x) => (float[A,B,C,D] y) <float[4] s = {1, 1, 2, 3}>
        { y = Resize<mode="nearest">(x, s) }""",
        opset=10,
        ir_version=5,
    )
    after, trace = apply(before, ResizeToUpsample())
    assert trace.rewrites
    np.testing.assert_array_equal(run(after, X)[0], run(before, X)[0])


def test_scales_of_run_time_are_left() -> None:
    before = parse("""g (float[1,2,3,4] x, float[4] s) => (float[A,B,C,D] y)
        { y = Resize<mode="nearest">(x, , s) }""")
    _, trace = apply(before, ResizeToUpsample())
    assert "run time" in reasons(trace)
