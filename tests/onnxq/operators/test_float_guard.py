"""What is a guard, and that it changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.operators.float_guard import is_float_guard, lowest
from tests.models.build import parse


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_maximum_with_it_is_the_number_itself(dtype: type) -> None:
    limit = lowest(np.dtype(dtype))
    numbers = np.array([-1, 0, 1, np.finfo(dtype).min, np.finfo(dtype).max, np.inf], dtype)
    np.testing.assert_array_equal(np.maximum(numbers, limit), numbers)
    assert limit.dtype == dtype


@pytest.mark.parametrize(
    ("body", "guards"),
    [
        ("<float c = {-3.4028234663852886e38}> { y = Max(x, c) }", True),
        ("<float c = {-3e38}> { y = Max(x, c) }", False),
        ("<float c = {-3.4028234663852886e38}> { y = Min(x, c) }", False),
        ("{ y = Max(x) }", False),
        ("{ y = Max(x, x) }", False),
    ],
)
def test_which_nodes_are_guards(body: str, guards: bool) -> None:
    (node,) = parse(f"g (float[2] x) => (float[2] y) {body}").nodes("Max", "Min")
    assert is_float_guard(node) is guards
    assert not is_float_guard(None)
