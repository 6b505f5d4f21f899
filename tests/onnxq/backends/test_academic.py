"""The setting of papers: few bits, 8 at the ends; the file is the canonical form."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import from_proto
from onnxq.running import sessions
from tests.models.build import parse, quantize
from tests.models.networks import NETWORKS
from tests.models.zoo import ZOO
from tests.onnxq.backends.check import proven


def test_scheme() -> None:
    scheme = find_backend("academic").scheme
    assert scheme.weight.bits == scheme.activation.bits == 4
    assert scheme.weight.trained().symmetric
    assert not scheme.activation.trained().symmetric


def test_placement() -> None:
    placement = find_backend("academic").placement
    assert placement.boundary_bits == 8
    assert not placement.fuse


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_networks(network: str) -> None:
    done = proven("academic", network)
    assert [a.suffix for a in done.artifacts] == ["_canonical.onnx"]
    widths = {params_of(node).qtype.bits for node in done.model.nodes(FAKE_QUANTIZE)}
    assert widths == {4}
    assert not done.model.nodes("QuantizeLinear")


@pytest.mark.parametrize("kind", ["int2", "uint4", "int16", "uint16", "float8e4m3fn"])
def test_any_type(kind: str) -> None:
    model = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", qtype=kind)
    done = onnxq.convert(model, "academic")
    assert done.proven
    (node,) = done.model.nodes(FAKE_QUANTIZE)
    assert str(params_of(node).qtype) == kind
    assert sessions.reference(done.model).outputs[0].name == "y"


def test_batch_norm_stays_apart() -> None:
    done = onnxq.convert(from_proto(ZOO["qdq_bn_unfolded"]()), "academic")
    assert done.proven
    assert done.model.nodes("BatchNormalization")
