"""The float form: ready for quantizers, the same function, and no quantized model."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.calibration.float_form import float_form
from onnxq.errors import UnsupportedModelError
from onnxq.graph import from_proto
from onnxq.running.sessions import reference
from tests.models.build import parse, quantize
from tests.models.networks import NETWORKS, samples


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_function_stays_and_batch_norms_go(name: str) -> None:
    model = from_proto(NETWORKS[name]())
    made, traces = float_form(model)
    assert made.nodes("BatchNormalization") == []
    assert traces
    for feed in samples(name):
        was, now = reference(model).run(feed)["y"], reference(made).run(feed)["y"]
        np.testing.assert_allclose(now, was, rtol=1e-3, atol=1e-4)


def test_a_quantized_model_is_refused() -> None:
    model = quantize(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"), "x")
    with pytest.raises(UnsupportedModelError, match="already: 1 quantizer, the first is of 'x'"):
        float_form(model)


def test_a_stored_weight_is_told_by_the_name_of_its_operator() -> None:
    model = parse("""g (float[N, 2] x) => (float[N, 2] y)
        <int8[2, 2] codes = {1, 2, 3, 4}, float scale = {0.5}> {
        [stored] w = DequantizeLinear(codes, scale)
        y = MatMul(x, w)
    }""")
    with pytest.raises(UnsupportedModelError, match="the first is 'stored'"):
        float_form(model)
