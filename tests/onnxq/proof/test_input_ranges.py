"""Random inputs come from the range that the input's quantizer represents."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.proof.input_ranges import input_ranges
from onnxq.proof.verify import verify
from onnxq.running.samples import samples
from onnxq.running.sessions import open_model, reference
from tests.models.build import parse, quantize

PAIR = "q = QuantizeLinear({x}, s, z)\ny = DequantizeLinear(q, s, z)"


@pytest.mark.parametrize(
    ("constants", "nodes", "ends"),
    [
        ("float s = {0.5}, uint8 z = {10}", PAIR.format(x="x"), (-5, 122.5)),
        ("float s = {0.5}, int8 z = {0}", PAIR.format(x="x"), (-64, 63.5)),
        ("float s = {0.5}, int8 z = {0}", "m = Transpose(x)\n" + PAIR.format(x="m"), (-64, 63.5)),
        ("float[2] s = {1, 2}, int8[2] z = {0, 8}", PAIR.format(x="x"), (-272, 238)),
        ("float s = {0.5}, int8 z = {0}", "m = Exp(x)\n" + PAIR.format(x="m"), None),
    ],
)
def test_the_range_of_a_quantizelinear(
    constants: str, nodes: str, ends: tuple[float, float] | None
) -> None:
    model = parse(f"g (float[2,2] x) => (float[2,2] y) <{constants}> {{ {nodes} }}")
    assert input_ranges(open_model(model)) == ({} if ends is None else {"x": ends})


def test_the_range_of_the_canonical_node_is_that_of_its_codes() -> None:
    model = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", lo=-7, hi=7)
    (ends,) = input_ranges(open_model(model)).values()
    np.testing.assert_allclose(ends, (-0.7, 0.7), rtol=1e-6)


def test_samples_are_seeded_and_lie_in_the_range() -> None:
    model = parse("g (float[1000] x) => (float[1000] y) { y = Neg(x) }")
    session, ranges = reference(model), {"x": (100.0, 700.0)}
    values = [feed["x"] for feed in samples(session, None, 2, 0, ranges)]
    again = [feed["x"] for feed in samples(session, None, 2, 0, ranges)]
    np.testing.assert_array_equal(values, again)
    assert values[0].dtype == np.float32
    assert 100 <= np.min(values) < 200
    assert 600 < np.max(values) <= 700
    assert abs(np.mean(values) - 400) < 10
    assert abs(np.std(values) - 100) < 5
    assert not np.array_equal(values[0], values[1])


def test_a_coarse_input_grid_is_seen() -> None:
    """Of N(0, 1) nothing would be left on a grid with steps of 100."""
    text = "g (float[64] x) => (float[64] y) { y = Neg(x) }"
    report = verify(quantize(parse(text), "x", scale=np.float32(100)), parse(text))
    assert not report.passed
    assert not any("same value everywhere" in note for note in report.notes)


def test_an_output_that_never_changes_is_told() -> None:
    model = parse("g (float[8] x) => (float[8] y) <float z = {0}> { y = Mul(x, z) }")
    assert any("same value everywhere" in note for note in verify(model, model).notes)
    two = parse(
        """g (float[8] x) => (float[8] y, float[8] n) <float z = {0}> {
        y = Mul(x, z)
        n = Neg(x) }"""
    )
    assert not any("same value everywhere" in note for note in verify(two, two).notes)
