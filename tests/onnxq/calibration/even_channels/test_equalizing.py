"""Equalizing: the same function, less noise, and only where factors pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.calibration.even_channels.equalizing import (
    HEADROOM,
    LEAST,
    equalize,
    groups,
    may_equalize,
)
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.wanted import wanted
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.observing.tensor_statistics import Channels
from onnxq.running.sessions import reference, shipped
from onnxq.workflows.quantize import quantize
from tests.models.build import parse_filled, run

Values = np.ndarray
SIZES = np.array([1.0, 8.0, 0.25, 2.0])
"""How large the channels are."""

ONE = """g (float[1,3,6,6] x) => (float[1,8,4,4] y) <float zero = {0}, float six = {6}> {
    a = Conv(x, w, b)
    c = Clip(a, zero, six)
    y = Conv<group=4>(c, v)
}"""
"""Two filters for each channel."""

SUM = """g (float[1,3,6,6] x) => (float[1,4,6,6] y) {
    a = Conv(x, w, b)
    r = Relu(a)
    d = Conv<group=4, pads=[1,1,1,1]>(r, v)
    p = Conv(d, u)
    s = Add(r, p)
    y = Conv<group=4, pads=[1,1,1,1]>(s, t)
}"""
SHAPES = {"w": (4, 3, 1, 1), "b": (4,), "v": (4, 1, 3, 3), "u": (4, 4, 1, 1), "t": (4, 1, 3, 3)}


def model(text: str, **shapes: tuple[int, ...]) -> Model:
    used = {k: v for k, v in (SHAPES | shapes).items() if f", {k})" in text or f", {k}," in text}
    made = parse_filled(text, **used)
    for tensor in made.graph.tensors().values():
        if tensor.name in ("w", "b", "u", "t"):
            sizes = 1 / SIZES if tensor.name == "t" else SIZES / 4  # outputs are alike
            scale = sizes.reshape(-1, *[1] * (len(used[tensor.name]) - 1))
            tensor.values = (array(tensor) * scale).astype(np.float32)
    return made


def pictures(count: int, seed: int = 0) -> list[dict[str, Values]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(1, 3, 6, 6)).astype(np.float32)} for _ in range(count)]


def seen(made: Model, names: str) -> dict[str, Channels]:
    """The channels of tensors over some pictures."""
    session = reference(made, taps=names)
    rows = [session.run(feed, only=list(names)) for feed in pictures(8)]
    found = {}
    for name in names:
        each = np.concatenate([row[name] for row in rows]).transpose(1, 0, 2, 3).reshape(4, -1)
        low, high = each.min(axis=1), each.max(axis=1)
        squares = np.square(each).mean(axis=1)
        found[name] = Channels(low, high, each.mean(axis=1), squares, each.shape[1])
    return found


@pytest.mark.parametrize(("text", "names"), [(ONE, "c"), (SUM, "rs")])
def test_the_function_stays(text: str, names: str) -> None:
    before = model(text, v=(8, 1, 3, 3)) if text is ONE else model(text)
    made, known = before.clone(), seen(before, names)
    done = equalize(made, known, names)
    assert [each.smoothed for each in done] == [each.tensor for each in done]
    assert sorted(each.tensor for each in done) == sorted(names)
    shares = [np.abs([k.low, k.high]).max(axis=0) for k in known.values()]
    share = np.max([each / each.max() for each in shares], axis=0)
    for each in done:
        np.testing.assert_allclose(
            each.factors, np.clip((1 + HEADROOM / 8) * share, LEAST, 1), rtol=1e-6
        )
        assert each.factors.min() == LEAST
        assert each.gain > 1.5
    for feed in pictures(8):
        was, now = run(before, feed["x"])[0], run(made, feed["x"])[0]
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-5)
    after = seen(made, names)
    for each in done:
        expected = known[each.tensor].divided(each.factors)
        np.testing.assert_allclose(after[each.tensor].high, expected.high, rtol=1e-5)
        np.testing.assert_allclose(after[each.tensor].average, expected.average, rtol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        ONE.replace("y = Conv<group=4>(c, v)", "y = Conv(c, q)"),  # rounds its weights differently
        ONE.replace("float zero = {0}", "float zero = {-1}"),
        ONE.replace("c = Clip(a, zero, six)", "c = Sigmoid(a)"),
        ONE.replace("=> (", "=> (float[1,4,6,6] c, "),
        SUM.replace("s = Add(r, p)", "e = Exp(r) f = Add(e, p) s = Add(r, f)"),
        SUM.replace("p = Conv(d, u)", "p = Conv(d, o)"),  # one channel, added to four
    ],
)
def test_what_factors_cannot_pass_is_left(text: str) -> None:
    made = model(text, q=(8, 4, 3, 3), o=(1, 4, 1, 1))
    assert list(groups(made)) == []


def test_a_group_is_left_unless_all_of_it_is_known() -> None:
    made = model(SUM)
    known = seen(made, "rs")
    assert equalize(made, {"s": known["s"]}, "rs") == []
    averages = replace(known["r"], low=np.full(4, np.inf), high=np.full(4, -np.inf))
    assert equalize(made, known | {"r": averages}, "rs") == []
    assert equalize(made, known, "rs", []) == []
    assert len(equalize(made, known, "rs", ["s"])) == 2


def test_even_channels_are_left() -> None:
    made = parse_filled(ONE, **{name: SHAPES[name] for name in "wbv"})
    even = Channels(np.zeros(4), np.ones(4), np.full(4, 0.5), np.full(4, 0.3), 10000)
    assert equalize(made, {"c": even}, "c") == []


def test_scales_for_each_channel_are_needed() -> None:
    scheme = find_backend("onnxruntime").scheme
    assert may_equalize(scheme)
    assert not may_equalize(replace(scheme, weight=replace(scheme.weight, per_channel=False)))


def test_the_channels_of_a_group_are_observed() -> None:
    placing = Placing(float_form(model(SUM))[0], find_backend("onnxruntime"))
    found = wanted(placing)
    assert found["r"].spread
    assert found["s"].spread
    assert not found["d"].spread
    assert not wanted(placing, channels=False)["r"].spread


def test_small_channels_get_more_codes(table_row: Any) -> None:
    """The noise in channels of the output, each as a share of its own power.

    The smallest channel is 32 times smaller than the largest. An eighth of the scale is a gain of
    18 dB before the last layer; the step of its own result remains.
    """
    made = model(SUM)
    data, others = pictures(16), pictures(16, seed=1)
    noises = {}
    for smooth in (False, True):
        done = quantize(made, "onnxruntime", data, smooth=smooth, method="min-max")
        assert done.proven
        assert any("smoothed" in note for note in done.notes) is smooth
        session, trusted = shipped(done.model), reference(made)
        pairs = [(trusted.run(feed)["y"], session.run(feed)["y"]) for feed in others]
        y, z = (np.concatenate(each).astype(np.float64) for each in zip(*pairs, strict=True))
        noises[smooth] = np.square(y - z).sum(axis=(0, 2, 3)) / np.square(y).sum(axis=(0, 2, 3))
    smallest = 10 * np.log10(noises[False][2] / noises[True][2])
    table_row("channels equalized", channel="smallest", gain=f"{smallest:.1f} dB")
    assert smallest > 10
    assert noises[True].sum() < noises[False].sum() / 10
    assert noises[True].max() < 1e-2


def test_a_recipe_replays_byte_for_byte(tmp_path: Path) -> None:
    made, data = model(SUM), pictures(16)
    done = quantize(made, "onnxruntime", data)
    assert done.recipe.smooth.keys() == {"p", "r", "s"}
    again = quantize(made, data=data, recipe=done.recipe)
    files = [
        {path.name: path.read_bytes() for path in each.save(tmp_path / folder)}
        for folder, each in (("a", done), ("b", again))
    ]
    assert files[0] == files[1]
