"""What is observed: the places of quantizers, channels of layers, rows of Softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.analysis.placement_walk import Place
from onnxq.backend import find_backend
from onnxq.calibration.float_form import float_form
from onnxq.calibration.placing import Placing
from onnxq.calibration.wanted import wanted
from onnxq.graph.constants import array
from onnxq.observing.tensor_statistics import Wanted
from onnxq.quant.settings import Settings
from onnxq.workflows import demo
from tests.models.build import parse, tensor


def numbers(count: int) -> str:
    return ", ".join(str(v) for v in np.linspace(-1, 1, count))


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "openvino"])
def test_every_place_and_every_layer_of_a_network(backend: str) -> None:
    placing = Placing(float_form(demo.build())[0], find_backend(backend))
    found = wanted(placing)
    for place in placing.places:
        for each in place.tensors:
            assert found[each.name].distribution
    assert found["image"].channels == 1
    # Before the depthwise convolution, and where no quantizer is placed: behind a pooling, and
    # behind a Flatten.
    assert found["block.relu2.out"] == Wanted(channels=1)
    assert found["pool.out"].channels == 1
    assert found["flatten.out"].channels == -1
    assert found["flatten.out"].spread


ATTENTION = f"""g (float[1,4,8] x) => (float[1,4,4] y)
<float[8,8] w = {{{numbers(64)}}}, float[8,8] v = {{{numbers(64)}}}> {{
  q = MatMul(x, w)  k = MatMul(x, v)  t = Transpose <perm = [0, 2, 1]> (k)
  s = MatMul(q, t)  y = Softmax <axis = AXIS> (s)
}}"""


@pytest.mark.parametrize(
    ("axis", "opset", "rows"), [(-1, 17, -1), (1, 17, 1), (2, 11, -1), (1, 11, None)]
)
def test_rows_of_a_softmax(axis: int, opset: int, rows: int | None) -> None:
    model, _ = float_form(parse(ATTENTION.replace("AXIS", str(axis)), opset=opset))
    placing = Placing(model, find_backend("onnxruntime"))
    # No target places a quantizer before a Softmax unless it is asked to.
    placing.places = [*placing.places, Place((tensor(placing.model, "s"),), False, "for the test")]
    found = wanted(placing)
    assert found["s"] == Wanted(rows=rows)
    assert found["x"] == Wanted(channels=-1, spread=True)
    assert found["q"] == Wanted()


def test_constants_are_not_observed() -> None:
    body = f"""g (float[1,4] x) => (float[1,4] y) <float[1,4] c = {{{numbers(4)}}}> {{
      a = Relu(x)  y = Add(a, c) }}"""
    placing = Placing(float_form(parse(body))[0], find_backend("onnxruntime"))
    place: Place[Any, Any] = Place((tensor(placing.model, "c"),), False, "for the test")
    placing.places = [place]
    assert array(place.tensors[0]) is not None
    assert wanted(placing) == {}


@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "openvino"])
def test_what_is_observed_serves_any_rules(backend: str) -> None:
    model, target = float_form(demo.build())[0], find_backend(backend)
    whole = wanted(Placing(model, target))
    assert all(each.distribution for each in whole.values())
    for node in model.nodes():
        some = wanted(Placing(model, target, Settings.of([[node.outputs[0].name, "float"]])))
        assert some.keys() <= whole.keys(), node.name
