"""The lower limit for steps of weights."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onnxq.quant.bias_room import ROOM, least_steps

SIZES = st.floats(2.0**-20, 2.0**20, width=32)


@given(st.lists(SIZES, min_size=1, max_size=5), SIZES)
def test_codes_at_the_limit_leave_half_of_int32(values: list[float], step: float) -> None:
    bias = np.float32(values) * np.where(np.arange(len(values)) % 2, -1, 1).astype(np.float32)
    each = least_steps(bias, step, bias.shape)
    np.testing.assert_allclose(np.abs(bias.astype(np.float64)) / (step * each), ROOM, rtol=1e-12)
    one = least_steps(bias, step, ())
    assert one.shape == ()
    np.testing.assert_allclose(one, each.max(), rtol=1e-12)


def test_no_bias_is_no_limit() -> None:
    assert least_steps(np.zeros(3, np.float32), 0.1, (3,)).tolist() == [0, 0, 0]
    assert least_steps(np.zeros(0, np.float32), 0.1, ()).tolist() == 0
