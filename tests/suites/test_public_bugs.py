"""Bugs that users of other tools reported in public: each is a test here.

Models come from the zoo; "converts" means: BN folded, written as QDQ, and the file computes in
onnxruntime's reference session what the source did.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.graph import Model, from_proto, load, save
from onnxq.graph.constants import array
from onnxq.operators.weight_axis import weight_axis
from onnxq.pipeline import Pipeline
from onnxq.proof.verify import verify
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions
from onnxq.storage import model_files
from passes.apply_qparams import ApplyQParams
from passes.phases import CLEAN, FOLD, READ
from passes.to_qdq import ToQdq
from tests.checks.saturating import saturates
from tests.models.build import apply, bit_equal, ops, parse, quantize, run, weight
from tests.models.zoo import ZOO, inputs


def folded(name: str) -> tuple[Model, Model]:
    """A zoo model before and after cleaning and folding."""
    before = from_proto(ZOO[name]())
    return before, Pipeline(*CLEAN, *FOLD).run(before).model


def same(before: Model, after: Model, name: str, bound: float = 1e-5) -> None:
    for seed in (0, 1):
        feeds = inputs(ZOO[name](), seed)
        old, new = sessions.reference(before).run(feeds), sessions.reference(after).run(feeds)
        for key, want in old.items():
            scale = np.abs(want).max() or 1.0
            assert np.abs(new[key] - want).max() <= bound * scale


def converts(name: str, backend: str = "onnxruntime") -> onnxq.Conversion:
    done = onnxq.convert(from_proto(ZOO[name]()), backend)
    assert done.report is not None
    assert done.report.passed
    return done


def quantize_weights(model: Model) -> Model:
    """One int8 scale per output channel on every constant weight."""
    for node in model.nodes("Conv", "ConvTranspose", "Gemm", "MatMul"):
        value = array(node.inputs[1])
        if value is None or value.ndim < 2 or node.inputs[1].name in model.qparams:
            continue
        layout = weight_axis(node, value.ndim)
        assert layout is not None
        rest = tuple(i for i in range(value.ndim) if i != layout.axis)
        scale = np.maximum(np.abs(value).max(axis=rest) / 127, 1e-6)
        model.qparams.add(
            QParams(
                node.inputs[1].name,
                qtype("int8"),
                scale,
                0,
                axis=layout.axis,
                lo=-127,
                role=Role.WEIGHT,
            )
        )
    return apply(model, ApplyQParams())[0]


def test_bias_of_one_element() -> None:
    before, after = folded("one_element_bias")
    same(before, after, "one_element_bias")
    made, _ = apply(quantize_weights(after), ToQdq())
    onnx.checker.check_model(made.to_proto(), full_check=True)


def test_bias_b_beside_tensor_b0() -> None:
    before, after = folded("name_clashes")
    same(before, after, "name_clashes")
    quantized = quantize_weights(after)
    made, _ = apply(quantized, ToQdq())
    proto = made.to_proto()
    names = [t.name for t in proto.graph.initializer]
    names += [o for n in proto.graph.node for o in n.output if o]
    assert len(names) == len(set(names))
    same(quantized, made, "name_clashes", 0)


@pytest.mark.parametrize(
    "name", ["conv_transpose_bn", "conv_transpose_groups_bn", "conv_transpose_depthwise_bn"]
)
def test_conv_transpose_channel_axis(name: str) -> None:
    before, after = folded(name)
    assert not after.nodes("BatchNormalization")
    same(before, after, name)
    quantized = quantize_weights(after)
    # Depthwise: one position on axis 1, shared by all groups, so one scale for the tensor.
    axis = None if "depthwise" in name else 1
    assert {params_of(n).axis for n in quantized.nodes(FAKE_QUANTIZE)} == {axis}
    made, _ = apply(quantized, ToQdq())
    same(quantized, made, name, 0)


@pytest.mark.parametrize(("name", "axis"), [("gemm_trans_b_0", 1), ("gemm_trans_b_1", 0)])
def test_gemm_channel_axis(name: str, axis: int) -> None:
    _, after = folded(name)
    quantized = quantize_weights(after)
    assert {params_of(n).axis for n in quantized.nodes(FAKE_QUANTIZE)} == {axis}
    made, _ = apply(quantized, ToQdq())
    same(quantized, made, name, 0)


def test_shared_weight_with_four_scales() -> None:
    done = converts("qdq_shared_weight_four_scales")
    assert done.proven


def test_weight_used_inside_if() -> None:
    before, after = folded("if_outer_weights")
    same(before, after, "if_outer_weights")
    converts("qdq_in_if")


def test_batch_norm_with_negative_and_zero_gamma() -> None:
    before, after = folded("bn_negative_zero_gamma")
    assert not after.nodes("BatchNormalization")
    same(before, after, "bn_negative_zero_gamma")
    done = converts("qdq_bn_unfolded")
    assert not done.model.nodes("BatchNormalization")


def test_batch_norm_before_padded_conv_is_not_folded() -> None:
    before, after = folded("bn_before_conv_padded")
    assert len(after.nodes("BatchNormalization")) == len(before.nodes("BatchNormalization"))
    same(before, after, "bn_before_conv_padded")
    before, after = folded("bn_before_conv")
    assert not after.nodes("BatchNormalization")
    same(before, after, "bn_before_conv")


@pytest.mark.parametrize("name", ["qdq_narrow_activations", "qdq_narrow_weights"])
def test_narrow_ranges(name: str) -> None:
    """Q -> Clip(0, 127) -> DQ, and -127..127."""
    converts(name)


def test_all_zero_channel() -> None:
    converts("qdq_all_zero_channel")


def test_nan_and_inf_samples_are_compared_not_hidden() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    quantize(model, "x")
    made, _ = apply(model, ToQdq())
    data = [{"x": np.float32([np.nan, np.inf, -np.inf, 1])}]
    assert verify(model, made, data).passed
    plain = parse("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    assert not verify(plain, made, data).passed


def test_ragged_batches() -> None:
    proto = ZOO["qdq_dynamic_batch"]()
    name = proto.graph.input[0].name
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim][1:]
    data = [
        {name: np.random.default_rng(n).normal(size=(n, *shape)).astype(np.float32)}
        for n in (1, 3, 2)
    ]
    model = from_proto(proto)
    assert verify(model, apply(model, *READ, ToQdq())[0], data).passed


@pytest.mark.parametrize("opset", [9, 10, 11, 12])
def test_old_opset_with_one_scale_per_channel(opset: int) -> None:
    name = f"opset_{opset}"
    _, after = folded(name)
    quantized = quantize_weights(after)
    made, trace = apply(quantized, ToQdq())
    assert made.opset >= 13
    assert any(f"opset {opset} -> 13" in n for n in trace.notes)
    onnx.checker.check_model(made.to_proto(), full_check=True)
    same(quantized, made, name, 1e-6)


@pytest.mark.parametrize(
    "name", ["weight_behind_cast", "weight_behind_transpose", "weight_behind_identity"]
)
def test_weight_behind_another_node(name: str) -> None:
    before, after = folded(name)
    same(before, after, name)
    assert not after.nodes("BatchNormalization", "Cast", "Identity")


def test_output_without_activation_keeps_its_quantizer() -> None:
    model = parse(
        "g (float[1,2] x) => (float[1,2] y) <float[2,2] w = {1,2,3,4}> { y = MatMul(x, w) }"
    )
    quantize(weight(quantize(model, "x"), "w"), "y")
    made, _ = apply(model, ToQdq())
    assert ops(made)[-1] == "DequantizeLinear"
    x = np.float32([[1.23, -4.56]])
    assert bit_equal(run(made, x), run(model, x))


def test_one_element_scales_are_written_as_scalars() -> None:
    done = converts("qdq_one_element_scales")
    for node in done.model.nodes("QuantizeLinear", "DequantizeLinear"):
        scale = array(node.inputs[1])
        assert scale.ndim == 0 or scale.size > 1


def test_repeated_gemm() -> None:
    before, after = folded("repeated_gemm")
    quantized = quantize_weights(after)
    made, _ = apply(quantized, ToQdq())
    same(quantized, made, "repeated_gemm", 0)
    assert len(made.nodes("Gemm")) == len(before.nodes("Gemm"))


def test_converting_twice_changes_nothing() -> None:
    first = converts("qdq_residual")
    second = onnxq.convert(from_proto(first.model.to_proto()), "onnxruntime")
    feeds = inputs(ZOO["qdq_residual"]())
    assert bit_equal(
        sessions.reference(first.model).run(feeds).values(),
        sessions.reference(second.model).run(feeds).values(),
    )
    assert ops(first.model) == ops(second.model)


def test_constant_value_float_stays_float32() -> None:
    model = parse(
        "g (float[2] x) => (float[2] y) { c = Constant<value_float = 2.5>() y = Mul(x, c) }"
    )
    after = Pipeline(*CLEAN).run(model).model
    (value,) = [array(t) for n in after.nodes("Mul") for t in n.inputs if array(t) is not None]
    assert value.dtype == np.float32
    assert bit_equal(run(after, np.float32([1, 2])), run(model, np.float32([1, 2])))


def test_metadata_is_kept() -> None:
    proto = ZOO["metadata_everywhere"]()
    made = Pipeline(*CLEAN, *FOLD).run(from_proto(proto)).model.to_proto()
    assert [(p.key, p.value) for p in made.metadata_props] == [
        (p.key, p.value) for p in proto.metadata_props
    ]
    assert made.doc_string == proto.doc_string
    assert made.graph.doc_string == proto.graph.doc_string
    assert [p.key for p in made.graph.metadata_props] == [p.key for p in proto.graph.metadata_props]
    kept = {n.name: n for n in made.graph.node}
    for node in proto.graph.node:
        if node.name in kept:
            assert kept[node.name].doc_string == node.doc_string
            assert list(kept[node.name].metadata_props) == list(node.metadata_props)


def test_models_beyond_the_protobuf_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered instead of making a file of 2 GiB."""
    monkeypatch.setattr(model_files, "PROTOBUF_LIMIT", 2000)
    monkeypatch.setattr(model_files, "EXTERNAL_THRESHOLD", 64)
    done = converts("qdq_residual")
    written = save(done.model, tmp_path / "large.onnx")
    assert [p.name for p in written] == ["large.onnx", "large.onnx.data"]
    feeds = inputs(ZOO["qdq_residual"]())
    assert bit_equal(
        sessions.reference(written[0]).run(feeds).values(),
        sessions.reference(done.model).run(feeds).values(),
    )
    again = save(load(written[0]), tmp_path / "again.onnx")
    assert len(again) == 2


def test_saturation_on_this_cpu_does_not_make_a_correct_model_look_wrong() -> None:
    done = onnxq.convert(from_proto(ZOO["qdq_saturating"]()), "onnxruntime")
    assert done.proven
    # Whether the default session saturates depends on the CPU; where it does, the user is told.
    off = saturates(done.model)
    assert bool(done.notes) == (off is not None)
