"""A gain on a quantized weight moves scales, never codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.folding.affine import CannotFold
from onnxq.folding.rescale_weight import rescale
from onnxq.operators.weight_axis import WeightAxis
from onnxq.quant.qparams import Array, QParams
from onnxq.quant.qtypes import qtype

EIGHT = {"int8": (-128, 127), "uint8": (0, 255), "narrow": (-127, 127), "int4": (-8, 7)}


def grid(kind: str, scale: object, zero_point: object, axis: int | None, block: int = 0) -> QParams:
    lo, hi = EIGHT[kind]
    return QParams(
        tensor="w",
        qtype=qtype("int8" if kind == "narrow" else kind),
        scale=np.asarray(scale, np.float32),
        zero_point=np.asarray(zero_point),
        axis=axis,
        block=block,
        lo=lo,
        hi=hi,
    )


def along(values: Array, axis: int, rank: int) -> Array:
    view = [1] * rank
    view[axis] = -1
    return values.reshape(view)


def steps_of(params: QParams, weight: Array) -> Array:
    return params.quantize(weight) - params.broadcast(weight.shape)[1]


GAINS = st.sampled_from([-3.7, -1.0, -0.013, 0.0, 0.4, 1.0, 1.9, 250.0])


@settings(max_examples=200, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**16), kind=st.sampled_from(sorted(EIGHT)))
def test_codes_stay_or_are_mirrored(data: st.DataObject, seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    lo, hi = EIGHT[kind]
    axis = data.draw(st.integers(0, 2))
    weight = (rng.uniform(lo - 3, hi + 3, (3, 4, 2)) * 0.02).astype(np.float32)
    channels = weight.shape[axis]
    per_channel = data.draw(st.booleans())
    count = channels if per_channel else ()
    symmetric = kind != "uint8" and data.draw(st.booleans())
    zero = np.zeros(count, int) if symmetric else rng.integers(lo, hi + 1, count)
    params = grid(kind, rng.uniform(0.01, 0.03, count), zero, axis if per_channel else None)
    gain = np.array(data.draw(st.lists(GAINS, min_size=channels, max_size=channels)))

    made = rescale(params, weight, WeightAxis(axis, 1), gain)

    sign = along(np.sign(gain).astype(int), axis, 3)
    before, after = steps_of(params, weight), steps_of(made.params, made.weight)
    np.testing.assert_array_equal(after, before * sign)
    codes = (params.quantize(weight), made.params.quantize(made.weight))
    for c in range(channels):
        old, new = (np.take(q, c, axis) for q in codes)
        z = int(np.take(np.broadcast_to(params.zero_point, (channels,)), c))
        if gain[c] > 0:
            np.testing.assert_array_equal(new, old)
        elif gain[c] < 0 and z == 0 and (-old).min() >= lo and (-old).max() <= hi:
            # One scale with equal gains decides for the whole tensor.
            if per_channel or not np.all(gain == gain[0]):
                np.testing.assert_array_equal(new, -old)
        elif gain[c] < 0:
            np.testing.assert_array_equal(new, lo + hi - old)
        else:
            np.testing.assert_array_equal(new, z)
    want = params.fake(weight).astype(np.float64) * along(gain, axis, 3)
    np.testing.assert_allclose(made.params.fake(made.weight), want, rtol=3e-7)
    # The float weight lies on the grid already.
    np.testing.assert_array_equal(made.params.fake(made.weight), made.weight)
    assert made.params.scale.min() > 0


def test_unit_gain_keeps_scales_to_the_bit() -> None:
    weight = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    params = grid("int8", [0.011, 0.013], [0, 0], 0)
    made = rescale(params, weight, WeightAxis(0, 1), np.array([1.0, -1.0]))
    np.testing.assert_array_equal(made.params.scale, params.scale)
    assert not made.notes


def test_lowest_code_forces_a_flip_with_a_note() -> None:
    weight = np.array([[-1.28, 0.5], [-1.27, 0.5], [-1.28, 0.5]], np.float32)
    made = rescale(
        grid("int8", [0.01] * 3, [0] * 3, 0), weight, WeightAxis(0, 1), np.array([-1.0, -1.0, 2.0])
    )
    np.testing.assert_array_equal(made.params.zero_point, [-1, 0, 0])
    np.testing.assert_array_equal(made.params.quantize(made.weight)[0], [127, -51])
    assert len(made.notes) == 1
    assert "1 of 3 output channels" in made.notes[0]


def test_zero_gain_keeps_the_scale_and_writes_the_zero_point() -> None:
    params = grid("uint8", [0.01, 0.02], [128, 3], 0)
    made = rescale(params, np.ones((2, 2), np.float32), WeightAxis(0, 1), np.array([2.0, 0.0]))
    assert made.params.scale[1] == params.scale[1]
    np.testing.assert_array_equal(made.params.quantize(made.weight)[1], [3, 3])
    np.testing.assert_array_equal(made.weight[1], [0, 0])


def test_one_scale_becomes_one_per_channel_only_where_needed() -> None:
    weight = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    params = grid("int8", 0.01, 0, None)
    spread = rescale(params, weight, WeightAxis(1, 1), np.array([1.0, 2.0, 0.5]))
    assert spread.params.axis == 1
    assert spread.params.scale.shape == (3,)
    assert "one scale became 3" in spread.notes[0]
    equal = rescale(params, weight, WeightAxis(1, 1), np.full(3, -2.0))
    assert equal.params.axis is None
    assert not equal.notes
    np.testing.assert_array_equal(equal.params.quantize(equal.weight), -params.quantize(weight))


def test_grouped_weight_takes_gains_equal_in_all_groups() -> None:
    weight = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32)
    params, where = grid("int8", [0.02, 0.03, 0.04], [0] * 3, 1), WeightAxis(1, 2)
    gain = np.array([2.0, -1.0, 0.5])
    made = rescale(params, weight, where, np.tile(gain, 2))
    np.testing.assert_allclose(made.params.scale, [0.04, 0.03, 0.02], rtol=1e-6)
    with pytest.raises(CannotFold, match="differs between groups"):
        rescale(params, weight, where, np.array([2.0, -1.0, 0.5, 2.0, -1.0, 0.6]))


def test_blocks_along_inputs_take_a_gain_per_output() -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((8, 3)).astype(np.float32)  # MatMul: (K, N), blocks along K
    params = grid("int4", rng.uniform(0.1, 0.3, (2, 3)), np.zeros((2, 3)), 0, block=4)
    gain = np.array([2.0, -0.5, 0.0])
    made = rescale(params, weight, WeightAxis(1, 1), gain)
    assert made.params.block == 4
    np.testing.assert_array_equal(
        steps_of(made.params, made.weight), steps_of(params, weight) * np.sign(gain).astype(int)
    )
    np.testing.assert_allclose(made.params.fake(made.weight), params.fake(weight) * gain, rtol=3e-7)


def test_scales_that_cannot_hold_the_gain() -> None:
    weight = np.ones((4, 3), np.float32)
    different, equal = np.array([1.0, 2.0, 3.0]), np.full(3, 2.0)
    rows = grid("int8", [0.01] * 4, [0] * 4, 0)
    with pytest.raises(CannotFold, match="run along axis 0"):
        rescale(rows, weight, WeightAxis(1, 1), different)
    np.testing.assert_allclose(
        rescale(rows, weight, WeightAxis(1, 1), equal).params.scale, 0.02, rtol=1e-6
    )
    blocks = grid("int8", np.full((4, 2), 0.01), np.zeros((4, 2)), 1, block=2)
    with pytest.raises(CannotFold, match="blocks across output channels"):
        rescale(blocks, weight, WeightAxis(1, 1), different)


@pytest.mark.parametrize(
    ("dtype", "gain"),
    [(np.float32, 1e-40), (np.float32, 1e41), (np.float32, 1e39), (np.float16, 1e-4)],
)
def test_a_scale_out_of_range_is_declined(dtype: type, gain: float) -> None:
    weight = np.full((2, 2), 0.5, dtype)
    with pytest.raises(CannotFold, match="out of the range of float"):
        rescale(
            grid("int8", [0.01, 0.01], [0, 0], 0), weight, WeightAxis(0, 1), np.array([1.0, gain])
        )


def test_half_precision_keeps_8_bit_codes_and_declines_16_bit_ones() -> None:
    rng = np.random.default_rng(2)
    weight = rng.uniform(-2, 2, (2, 50)).astype(np.float16)
    scale = np.float16([0.015, 0.02]).astype(np.float32)
    params = grid("int8", scale, [0, 0], 0)
    made = rescale(params, weight, WeightAxis(0, 1), np.array([1.37, -0.77]))
    assert made.weight.dtype == np.float16
    assert np.array_equal(made.params.scale, made.params.scale.astype(np.float16))
    np.testing.assert_array_equal(
        made.params.quantize(made.weight), params.quantize(weight) * [[1], [-1]]
    )
    fine = QParams(
        tensor="w", qtype=qtype("int16"), scale=np.float32(1e-4), zero_point=np.zeros(())
    )
    with pytest.raises(CannotFold, match="too few digits"):
        rescale(fine, weight, WeightAxis(0, 1), np.array([7.0, 7.0]))


@pytest.mark.parametrize("kind", ["float8e4m3fn", "float8e5m2fnuz"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_float8_codes_stay_or_change_their_sign(kind: str, per_channel: bool) -> None:
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(4, 50)) * 10.0 ** rng.uniform(-5, 2, (4, 50))).astype(np.float32)
    scale = rng.uniform(0.01, 0.1, 4 if per_channel else ()).astype(np.float32)
    params = QParams("w", qtype(kind), scale, np.int64(0), axis=0 if per_channel else None)
    gain = np.array([-3.7, 0.4, 0.0, 250.0])
    made = rescale(params, weight, WeightAxis(0, 1), gain)
    want = params.quantize(weight) * np.sign(gain)[:, None]
    np.testing.assert_array_equal(made.params.quantize(made.weight), want)
    np.testing.assert_allclose(
        made.params.fake(made.weight), params.fake(weight) * gain[:, None], rtol=1e-6
    )
