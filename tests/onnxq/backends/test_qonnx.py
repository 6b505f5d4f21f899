"""QONNX: Quant nodes, any number of bits, read back as they were."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.errors import OnnxqError
from onnxq.graph.constants import array
from tests.models.build import parse, quantize
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven

QUANT = "qonnx.custom_op.general::Quant"


def test_scheme_trains_with_zero_points_at_zero() -> None:
    scheme = find_backend("qonnx").scheme
    for spec in (scheme.weight, scheme.activation):
        assert spec.trained().symmetric
        assert {"int2", "int4", "int8", "int16"} <= set(spec.types)


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_networks(network: str) -> None:
    done = proven("qonnx", network)
    assert [p.what for p in done.proofs] == ["qonnx.onnx (read back)"]
    given = quantized(network, find_backend("qonnx"))
    assert len(done.model.nodes(QUANT)) == len(given.nodes(FAKE_QUANTIZE))
    assert not done.model.nodes("QuantizeLinear", FAKE_QUANTIZE)


@pytest.mark.parametrize(("kind", "bits"), [("int2", 2), ("uint4", 4), ("int16", 16)])
def test_bits_are_kept(kind: str, bits: int) -> None:
    model = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", qtype=kind)
    done = onnxq.convert(model, "qonnx")
    assert done.proven
    (node,) = done.model.nodes(QUANT)
    assert array(node.inputs[3]) == bits


def test_ranges_without_a_spelling_are_refused_by_name() -> None:
    model = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", lo=-5, hi=90)
    with pytest.raises(OnnxqError, match=r"'x' \(activation\).*-5\.\.90"):
        onnxq.convert(model, "qonnx")
