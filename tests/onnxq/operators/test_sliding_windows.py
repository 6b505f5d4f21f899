from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.operators.sliding_windows import Windows
from onnxq.running import sessions
from tests.models.zoo_build import Build


def average(attributes: dict[str, Any], x: np.ndarray) -> np.ndarray:
    """AveragePool by the windows alone."""
    windows = Windows.of(attributes, x.shape[2:], attributes["kernel_shape"])
    padded = windows.pad(x.astype(np.float64))
    inside = windows.counted(bool(attributes.get("count_include_pad", 0)))
    offsets = list(itertools.product(*map(range, windows.kernel)))
    total = sum(padded[(..., *windows.slices(o))] for o in offsets)
    return np.asarray(total / sum(inside[windows.slices(o)] for o in offsets))


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 2))

    def each(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    kernel = each(1, 3)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": each(1, 3)}
    mode = draw(st.sampled_from(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")))
    if mode == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    else:
        attributes["auto_pad"] = mode
    return attributes


@settings(max_examples=80, deadline=None, derandomize=True)
@given(attributes=pools(), size=st.integers(4, 9))
def test_windows_are_those_of_onnxruntime(attributes: dict[str, Any], size: int) -> None:
    b = Build(19)
    shape = [1, 2] + [size] * len(attributes["kernel_shape"])
    y = b.op("AveragePool", b.input("x", shape), **attributes)
    b.typed_output(y, [None] * len(shape))
    proto = b.model()
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (want,) = sessions.reference(proto).run({"x": x}).values()
    np.testing.assert_allclose(average(attributes, x), want, rtol=0, atol=1e-6)


def test_dilated_windows_take_every_second_element() -> None:
    windows = Windows.of({"dilations": [2], "pads": [1, 2], "strides": [3]}, (7,), (3,))
    assert windows.output == (2,)
    padded = windows.pad(np.arange(7.0))
    taken = np.stack([padded[windows.slices((o,))] for o in range(3)], 1)
    np.testing.assert_array_equal(taken, [[0, 1, 3], [2, 4, 6]])


@pytest.mark.parametrize("mode", ["SAME_UPPER", b"SAME_UPPER"])
def test_the_mode_may_be_text_or_bytes(mode: object) -> None:
    windows = Windows.of({"auto_pad": mode}, (4,), (2,))
    assert (windows.begins, windows.ends, windows.count) == ((0,), (1,), 4)
