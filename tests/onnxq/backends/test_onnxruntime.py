"""The onnxruntime backend: proven in the reference and the deployed session, and really integer."""

from __future__ import annotations

import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.edit import producer
from onnxq.graph import from_proto
from onnxq.quant.qparams import Role
from onnxq.running import sessions as runtime
from onnxq.workflows import demo
from tests.checks.optimized import optimized_ops
from tests.checks.saturating import saturates
from tests.models.networks import NETWORKS, quantized, samples
from tests.models.zoo import CNN, ZOO, inputs
from tests.onnxq.backends.check import proven


@pytest.mark.parametrize("name", sorted(CNN))
def test_every_conv_runs_in_integers(name: str) -> None:
    proto = ZOO[name]()
    convs = sum(n.op_type == "Conv" for n in proto.graph.node)
    done = onnxq.convert(from_proto(proto), "onnxruntime")
    assert done.proven, [
        (p.what, [(o.max, o.moved) for o in p.report.outputs]) for p in done.proofs
    ]
    ops = optimized_ops(done.model, "deployed")
    assert ops["QLinearConv"] == convs, ops
    assert ops["Conv"] == ops["FusedConv"] == 0


def test_the_demo_network_runs_in_integers() -> None:
    done = onnxq.convert(demo.quantize(demo.build()), "onnxruntime")
    assert done.proven
    ops = optimized_ops(done.model, "deployed")
    assert ops["QLinearConv"] == 5
    # One Q at the input and one DQ at the output: everything between runs on codes.
    assert ops["QuantizeLinear"] == ops["DequantizeLinear"] == 1
    assert not ops.keys() & {"Conv", "FusedConv", "Gemm", "Add", "Relu", "GlobalAveragePool"}


def test_training_keeps_weights_symmetric_and_activations_unsigned() -> None:
    backend = find_backend("onnxruntime")
    weight = backend.scheme.weight.trained()
    assert (weight.symmetric, weight.range) == (True, (-127, 127))
    assert backend.scheme.activation.trained().range == (0, 255)
    assert {"Conv", "Add", "MatMul"} <= backend.placement.inputs
    assert {"Conv", "Add"} <= backend.placement.outputs
    assert "MatMul" not in backend.placement.outputs  # products in float cost no time
    assert "MatMul" in backend.variant("qoperator").placement.outputs
    assert backend.placement.absorbed == {"Relu", "Clip"}


@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("variant", [None, "int32-bias", "qoperator", "avx2"])
def test_networks(network: str, variant: str | None) -> None:
    done = proven("onnxruntime", network, variant)
    assert done.variant == variant
    if variant == "qoperator":
        ops = {node.op for node in done.model.nodes()}
        assert done.artifacts[0].suffix == "_qoperator.onnx"
        assert "Conv" not in ops
        assert "Gemm" not in ops
        assert "QLinearConv" in ops or "QLinearMatMul" in ops
        # Its kernels add the rounded biases: nothing is left to differ in.
        deployed = next(p for p in done.proofs if "deployed" in p.what)
        assert deployed.report.outputs[0].max == 0


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_with_biases_in_codes_the_kernels_are_within_a_step(network: str) -> None:
    variant = proven("onnxruntime", network, "int32-bias")
    # The same holds without the variant for a network that has such biases from the start.
    source = quantized(network, find_backend("onnxruntime"), int32_biases=True)
    plain = onnxq.convert(source, "onnxruntime", data=samples(network))
    assert plain.change is None
    for done in (variant, plain):
        assert done.proven
        deployed = next(p for p in done.proofs if "deployed" in p.what)
        assert deployed.report.outputs[0].max <= 1
        assert not any("integer kernels are up to" in note for note in done.notes)


def test_int32_biases_are_stored_as_codes() -> None:
    done = proven("onnxruntime", "unet", "int32-bias")
    rows = done.table.of(Role.BIAS)
    layers = done.model.nodes("Conv", "ConvTranspose")
    assert len(rows) == len(layers) == 5
    for layer in layers:
        dequantize = producer(layer.inputs[2], "DequantizeLinear")
        assert dequantize is not None
        assert dequantize.inputs[0].values.dtype == "int32"
    # The kernels do the same to float biases: neither file is better than the other.
    plain = proven("onnxruntime", "unet")
    sessions = [runtime.deployed(d.model) for d in (plain, done)]
    for feed in samples("unet"):
        first, second = (session.run(feed)["y"] for session in sessions)
        assert (first == second).all()


@pytest.mark.parametrize("variant", ["int32-bias", "qoperator"])
def test_what_rounded_biases_cost_is_measured(variant: str) -> None:
    done = proven("onnxruntime", "resnet", variant)
    assert done.cost is not None
    assert done.cost.outputs[0].max <= 1
    assert any("round-bias" in note for note in done.notes)
    assert proven("onnxruntime", "resnet").cost is None


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_avx2_cannot_saturate_and_changes_nothing(network: str) -> None:
    plain, safe = (proven("onnxruntime", network, variant) for variant in (None, "avx2"))
    assert any("unsafe on AVX2" in f.message for f in plain.findings)
    assert not any("unsafe on AVX2" in f.message for f in safe.findings)
    assert safe.change is None
    assert saturates(safe.model, samples(network)) is None
    # The same layers run in integers.
    integer = [optimized_ops(d.model, "shipped") for d in (plain, safe)]
    for op in ("QLinearConv", "QGemm", "QLinearMatMul", "QLinearAdd"):
        assert integer[0][op] == integer[1][op]


def test_default_kernels_are_right_on_every_cpu() -> None:
    proto = ZOO["qdq_saturating"]()
    feeds = [inputs(proto)]
    plain, safe = (
        onnxq.convert(from_proto(proto), "onnxruntime", variant=variant, data=feeds)
        for variant in (None, "avx2")
    )
    assert {str(row.qtype) for row in plain.table.of(Role.WEIGHT)} == {"int8"}
    assert {str(row.qtype) for row in safe.table.of(Role.WEIGHT)} == {"uint8"}
    assert safe.proven
    assert saturates(safe.model, feeds) is None
    assert not any("saturate" in note for note in safe.notes)
    told = any("its 8-bit kernels saturate" in note for note in plain.notes)
    assert told == (saturates(plain.model, feeds) is not None)  # the one or the other, by the CPU
