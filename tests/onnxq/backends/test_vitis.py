"""Vitis AI: powers of two everywhere, outputs only, biases too."""

from __future__ import annotations

import json

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.errors import BackendError
from onnxq.workflows import demo
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("vitis").scheme
    assert scheme.bias is not None
    for spec in (scheme.weight, scheme.activation, scheme.bias):
        assert spec.power_of_two
        assert spec.symmetric
        assert spec.algorithm == "tqt"
        assert spec.range == (-128, 127)
    assert scheme.activation.observer == "pot-mode"


def test_placement() -> None:
    placement = find_backend("vitis").placement
    assert placement.inputs == {"Conv", "ConvTranspose", "Linear"}
    assert placement.graph_inputs
    assert {"Conv", "Relu", "Concat"} <= placement.outputs


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    (text,) = proven_by_files("vitis", network).values()
    scales = [entry["scale"] for entry in json.loads(text)["vitis"].values()]
    assert all(np.frexp(s)[0] == 0.5 for s in scales)


def test_the_input_of_the_network_has_a_scale() -> None:
    assert "x" in json.loads(proven_by_files("vitis", "resnet")["_clip_ranges.json"])["vitis"]


def test_float_biases_are_pointed_out() -> None:
    done = onnxq.convert(quantized("conv1d", find_backend("vitis")), "vitis", verify=False)
    assert any(f.rule == "vitis-shifts" and "bias is float" in f.message for f in done.findings)


def test_other_scales_are_refused_by_name() -> None:
    with pytest.raises(BackendError, match="must be a power of two"):
        onnxq.convert(demo.quantize(demo.build()), "vitis")
