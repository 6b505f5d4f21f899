"""RKNN: int8 with a zero point, QDQ and the configuration of hybrid quantization."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.graph import Model
from onnxq.quant.qparams import Role
from tests.models.build import parse, quantize, weight
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("rknn").scheme
    assert scheme.weight.per_channel
    assert scheme.weight.symmetric
    assert scheme.activation.range == (-128, 127)
    assert not scheme.activation.symmetric


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    (text,) = proven_by_files("rknn", network, qdq=True).values()
    assert text.startswith("custom_quantize_layers: {}\nquantize_parameters:\n")
    assert "qmethod: channel" in text
    assert "dtype: int8" in text


def test_file_names() -> None:
    done = onnxq.convert(quantized("conv1d", find_backend("rknn")), "rknn", verify=False)
    assert [a.suffix for a in done.artifacts] == [
        "_qdq.onnx",
        "_deploy_model.onnx",
        "_deploy_model.quantization.cfg",
    ]


def test_the_toolkit_finds_every_attribute() -> None:
    done = onnxq.convert(quantized("transformer", find_backend("rknn")), "rknn", verify=False)
    models = [a.content for a in done.artifacts if isinstance(a.content, Model)]
    assert len(models) == 2
    for model in models:
        norms = model.nodes("LayerNormalization")
        assert len(norms) == 2
        assert all(n.attrs["epsilon"] == pytest.approx(1e-5) for n in norms)


def test_weights_of_one_scale_may_have_a_zero_point() -> None:
    model = parse(
        """g (float[1,4] x) => (float[1,2] y)
        <float[4,2] w = {1.27, -0.3, 0.7, 2.1, 0.1, 0.9, 0, 1}> { y = MatMul(x, w) }"""
    )
    for name in ("x", "y"):
        quantize(model, name, qtype="uint8", zero_point=120, scale=np.float32(0.05))
    weight(model, "w", qtype="uint8", zero_point=60, scale=np.float32(0.0118))
    done = onnxq.convert(model, "rknn")
    assert done.proven
    assert done.change is None
    (row,) = done.table.of(Role.WEIGHT)
    assert (str(row.qtype), int(row.zero_point)) == ("int8", -68)
