"""The onnxruntime backend: proven in the reference and the deployed session, and really integer."""

from __future__ import annotations

import pytest

import onnxq
from onnxq import demo, runtime
from onnxq.discovery import find_backend
from onnxq.graph import from_proto
from tests.zoo import CNN, ZOO


@pytest.mark.parametrize("name", sorted(CNN))
def test_every_conv_runs_in_integers(name: str) -> None:
    proto = ZOO[name]()
    convs = sum(n.op_type == "Conv" for n in proto.graph.node)
    done = onnxq.convert(from_proto(proto), "onnxruntime")
    assert done.proven, [
        (p.what, [(o.max, o.moved) for o in p.report.outputs]) for p in done.proofs
    ]
    ops = runtime.optimized_ops(done.model, "deployed")
    assert ops["QLinearConv"] == convs, ops
    assert ops["Conv"] == ops["FusedConv"] == 0


def test_the_demo_network_runs_in_integers() -> None:
    done = onnxq.convert(demo.quantize(demo.build()), "onnxruntime")
    assert done.proven
    ops = runtime.optimized_ops(done.model, "deployed")
    assert ops["QLinearConv"] == 5
    # One Q at the input and one DQ at the output: everything between runs on codes.
    assert ops["QuantizeLinear"] == ops["DequantizeLinear"] == 1
    assert not ops.keys() & {"Conv", "FusedConv", "Gemm", "Add", "Relu", "GlobalAveragePool"}


def test_training_keeps_weights_symmetric_and_activations_unsigned() -> None:
    backend = find_backend("onnxruntime")
    weight = backend.scheme.weight.trained()
    assert (weight.symmetric, weight.range) == (True, (-127, 127))
    assert backend.scheme.activation.trained().range == (0, 255)
    assert {"Conv", "Add", "MatMul"} <= backend.placement.inputs & backend.placement.outputs
    assert backend.placement.absorbed == {"Relu", "Clip"}
