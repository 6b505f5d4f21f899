"""The demonstration network is what its description says."""

from __future__ import annotations

import numpy as np

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from onnxq.running import sessions
from onnxq.workflows import demo


def test_it_has_what_a_conversion_must_handle() -> None:
    model = demo.build()
    groups = {n.attrs.get("group", 1) for n in model.nodes("Conv")}
    assert groups == {1, 16}
    assert all((array(n.inputs[1]) < 0).any() for n in model.nodes("BatchNormalization"))


def test_ranges_come_from_the_network_itself() -> None:
    model = demo.quantize(demo.build(seed=3), seed=1)
    scales = [params_of(n) for n in model.nodes(FAKE_QUANTIZE)]
    assert {p.role for p in scales} == {Role.WEIGHT, Role.ACTIVATION}
    weights = [p for p in scales if p.role is Role.WEIGHT]
    assert all(p.axis == 0 and p.lo == -127 for p in weights)


def test_quantizing_costs_little() -> None:
    image = np.random.default_rng(5).normal(size=(1, 3, 32, 32)).astype(np.float32)
    exact = sessions.reference(demo.build()).run({"image": image})["logits"]
    coarse = sessions.reference(demo.quantize(demo.build())).run({"image": image})["logits"]
    assert 0 < np.abs(exact - coarse).max() < 0.1 * np.abs(exact).max()
