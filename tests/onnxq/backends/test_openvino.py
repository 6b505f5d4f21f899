"""OpenVINO: what its kernels run, in either spelling, and what they cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.backend import Backend, find_backend
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from onnxq.running import sessions
from onnxq.workflows.convert import Conversion
from tests.models.build import parse, quantize, weight
from tests.models.networks import NETWORKS, quantized, samples
from tests.onnxq.backends.check import proven
from tests.onnxq.backends.off_axis import off_axis_product

FAKE_QUANTIZE = "org.openvinotoolkit::FakeQuantize"


def test_scheme() -> None:
    scheme = find_backend("openvino").scheme
    assert scheme.weight.range == (-64, 63)
    assert (scheme.weight.symmetric, scheme.weight.per_channel) == (True, True)
    # Two products of the largest codes fit the 16 bits that older CPUs add in.
    assert 2 * 255 * max(map(abs, scheme.weight.range)) < 2**15
    assert scheme.activation.trained().symmetric
    assert scheme.activation.unsigned().range == (0, 255)


def test_placement() -> None:
    placement = find_backend("openvino").placement
    assert placement.unsigned
    assert placement.graph_inputs
    assert "Concat" in placement.moves & placement.unified
    assert placement.accumulated == {"Conv"}


@pytest.mark.parametrize("network", sorted(NETWORKS))
@pytest.mark.parametrize("variant", [None, "fakequantize", "avx2"])
def test_networks(network: str, variant: str | None) -> None:
    done = proven("openvino", network, variant)
    assert done.change is None  # nothing to give up where training followed the target
    assert any("safe on AVX2" in f.message for f in done.findings)
    if variant == "fakequantize":
        assert done.artifacts[0].suffix == "_deploy_model.onnx"
        assert not done.model.nodes("QuantizeLinear")
        # Other numbers of levels run in float.
        assert {n.attrs["levels"] for n in done.model.nodes(FAKE_QUANTIZE)} == {256}


def test_what_a_concat_joins_is_unsigned() -> None:
    (concat,) = proven("openvino", "unet").model.nodes("Concat")
    for tensor in concat.inputs:
        zero = array(tensor.inputs[0].inputs[2])
        assert (zero.dtype, int(zero)) == (np.uint8, 128)


def elsewhere() -> Backend:
    """A backend with 8-bit weights that also quantizes what is added: none of OpenVINO's rules."""
    backend = find_backend("openvino")
    weight = replace(backend.scheme.weight, lo=-127, hi=127)
    return replace(
        backend,
        scheme=replace(backend.scheme, weight=weight),
        placement=replace(backend.placement, accumulated=frozenset()),
    )


def changed(network: str, variant: str | None = None) -> Conversion:
    model = quantized(network, elsewhere())
    return onnxq.convert(model, "openvino", variant=variant, data=samples(network))


def test_the_quantizer_that_it_ignores_is_dropped_and_reported() -> None:
    done = changed("mobilenet")
    assert done.proven
    assert done.cost is not None
    assert 0 < done.cost.outputs[0].max < 0.05
    (note,) = [n for n in done.notes if "drop-summed-quantizers" in n]
    for add in done.model.nodes("Add"):
        dropped = [t for t in add.inputs if t.inputs[0].op == "Conv"]
        assert len(dropped) == 1
        assert f"'{dropped[0].name}': goes to" in note
    assert done.to_json()["cost"][0]["max"] == done.cost.outputs[0].max


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_avx2_rounds_weights_that_could_saturate(network: str) -> None:
    plain, narrow = changed(network), changed(network, "avx2")
    assert plain.proven
    assert narrow.proven
    assert any("unsafe on AVX2" in f.message for f in plain.findings)
    assert not any("unsafe on AVX2" in f.message for f in narrow.findings)
    assert narrow.cost is not None
    assert 0 < narrow.cost.outputs[0].max < 0.1
    assert any("narrow-weights" in n and "7 bits, off by up to 0." in n for n in narrow.notes)
    for row in narrow.table.of(Role.WEIGHT):
        assert (row.lo, row.hi) == (-64, 63)


@pytest.mark.parametrize("variant", [None, "fakequantize"])
def test_scales_along_a_summed_axis_are_not_left_to_openvino(variant: str | None) -> None:
    """Its MatMul takes them for those of columns: 16 steps off, measured with 2026.4.1."""
    done = onnxq.convert(off_axis_product(), "openvino", variant=variant)
    assert done.proven
    assert done.change is None
    assert done.table.of(Role.WEIGHT) == []
    (product,) = done.model.nodes("MatMul")
    assert array(product.inputs[1]) is not None


@pytest.mark.parametrize(("group", "precision"), [(4, "u8"), (1, "f32")])
def test_activations_with_a_scale_per_channel(group: int, precision: str, tmp_path: Path) -> None:
    """OpenVINO computes them exactly: in 8 bits before a depthwise convolution, else in float."""
    openvino = pytest.importorskip("openvino")
    random = np.random.default_rng(0)
    count = 4 * 4 // group * 9
    values = ", ".join(map(str, random.normal(size=count).astype(np.float32)))
    model = parse(
        f"""g (float[1,4,9,9] x) => (float[1,4,9,9] y)
        <float[4,{4 // group},3,3] w = {{{values}}}> {{
            r = Relu(x)
            c = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group={group}>(r, w)
            y = Relu(c)
        }}"""
    )
    scales = random.uniform(0.005, 0.03, 4).astype(np.float32)
    quantize(model, "r", qtype="uint8", scale=scales, zero_point=np.zeros(4, int), axis=1)
    quantize(model, "y", qtype="uint8", scale=np.float32(0.05))
    weight(model, "w", scale=np.full(4, 0.05, np.float32), axis=0, lo=-64, hi=63)
    done = onnxq.convert(model, "openvino")
    assert done.proven
    assert done.change is None
    done.save(tmp_path)
    ran = openvino.Core().compile_model(
        tmp_path / "model_qdq.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    x = random.normal(size=(1, 4, 9, 9)).astype(np.float32)
    (mine,) = ran({0: x}).values()
    (want,) = sessions.reference(model).run({"x": x}).values()
    assert np.abs(mine - want).max() <= 1e-5
    kinds = {
        info["layerType"].astype(str): info["runtimePrecision"].astype(str)
        for info in (op.get_rt_info() for op in ran.get_runtime_model().get_ordered_ops())
    }
    assert kinds["Convolution"] == precision


@pytest.mark.parametrize("kind", ["float8e4m3fn", "float8e5m2"])
def test_float8_is_written_as_it_is(kind: str) -> None:
    model = parse(
        """g (float[1,4] x) => (float[1,2] y)
        <float[4,2] w = {1.27, -0.3, 0.7, 2.1, 0.1, 0.9, 0, 1}> { y = MatMul(x, w) }"""
    )
    quantize(model, "x", qtype=kind, scale=np.float32(0.01))
    weight(model, "w", qtype=kind, scale=np.float32([0.01, 0.005]), axis=1)
    done = onnxq.convert(model, "openvino")
    assert done.proven
    assert {str(row.qtype) for row in done.table} == {kind}
