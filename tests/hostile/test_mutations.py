"""Small models like those that mutations broke onnxq with, one for each cause."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError, OnnxqError, QParamsError, VerifyError
from onnxq.folding.affine import all_finite
from onnxq.folding.linear import CannotFold, read_layer, weight_value
from onnxq.graph import Model, from_proto
from onnxq.operators.op_kind import kind_of
from onnxq.pipeline import Pipeline
from onnxq.proof.verify import verify
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.reading import canonical
from onnxq.running.integer_kernels import compute, requantize
from onnxq.workflows.lint_model import lint
from passes.fold_affine import FoldAffine
from passes.fold_batch_norm import FoldBatchNorm
from tests.models.build import parse
from tests.models.protos import info, make, node_of
from tests.models.zoo import ZOO


def skips(model: Model) -> str:
    return " ".join(s.reason for trace in canonical(model)[1] for s in trace.skips)


# -- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["op_type", "name", "domain", "input", "output"])
def test_a_name_that_is_not_utf8_is_refused(field: str) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="abcd", domain="abcd")
    values = getattr(node, field)
    if isinstance(values, str):
        setattr(node, field, "abcd")
    else:
        values[0] = "abcd"
    raw = make([node]).SerializeToString().replace(b"abcd", b"ab\xff\xfe")
    with pytest.raises(InvalidModelError, match="is not UTF-8"):
        from_proto(onnx.load_from_string(raw))


def test_a_domain_or_function_that_is_not_utf8_is_refused() -> None:
    proto = make([helper.make_node("Relu", ["x"], ["y"])])
    proto.opset_import.append(helper.make_opsetid("abcd", 1))
    with pytest.raises(InvalidModelError, match="is not UTF-8"):
        from_proto(onnx.load_from_string(proto.SerializeToString().replace(b"abcd", b"ab\xff\xfe")))
    proto = make([helper.make_node("Relu", ["x"], ["y"])])
    proto.functions.append(helper.make_function("f", "abcd", ["a"], ["a"], [], []))
    with pytest.raises(InvalidModelError, match="is not UTF-8"):
        from_proto(onnx.load_from_string(proto.SerializeToString().replace(b"abcd", b"ab\xff\xfe")))


@pytest.mark.parametrize("version", [2**31, 2**40, -1])
def test_an_opset_that_is_none_is_refused(version: int) -> None:
    proto = make([helper.make_node("Relu", ["x"], ["y"])])
    proto.opset_import[0].version = version
    with pytest.raises(InvalidModelError, match="which is not an opset"):
        from_proto(proto)


def test_an_opset_beyond_all_known_ones_takes_no_time() -> None:
    proto = make([helper.make_node("Clip", ["x"], ["y"], min=0.0)], opset=2**31 - 1)
    notes = [note for trace in canonical(from_proto(proto))[1] for note in trace.notes]
    assert any("is newer than onnxq supports" in note for note in notes)


# -- attributes of private operators ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "op", "attribute"),
    [
        ("matmul_nbits", "MatMulNBits", "block_size"),
        ("openvino_cnn", "FakeQuantize", "levels"),
        ("qop_contrib_curves", "QLinearSoftmax", "opset"),
        ("qonnx_cnn", "Quant", "signed"),
        ("qop_channels_last", "NhwcMaxPool", "kernel_shape"),
    ],
)
def test_attribute_of_a_private_operator_in_another_type(
    name: str, op: str, attribute: str
) -> None:
    proto = ZOO[name]()
    node = next(n for n in proto.graph.node if n.op_type == op)
    found = next(a for a in node.attribute if a.name == attribute)
    found.CopyFrom(helper.make_attribute(attribute, "text"))
    with pytest.raises(InvalidModelError, match=f"'{attribute}' that is not of type INT"):
        from_proto(proto)


# -- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [np.inf, np.nan, 3e38, 65.0])
def test_a_bit_width_beyond_all_types_is_declined(bits: float) -> None:
    proto = ZOO["qonnx_cnn"]()
    nodes = [n for n in proto.graph.node if n.op_type == "Quant"]
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(bits), "odd"))
    for node in nodes:
        node.input[3] = "odd"
    assert "bit width" in skips(from_proto(proto))


def test_bounds_that_do_not_fit_each_other_are_refused() -> None:
    proto = ZOO["openvino_cnn"]()
    node = next(n for n in proto.graph.node if n.op_type == "FakeQuantize")
    for at, size in enumerate((2, 3)):
        bound = np.full((size, 1, 1), -1.0 + 2 * at, np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(bound, f"odd{at}"))
        node.input[3 + at] = f"odd{at}"
    with pytest.raises(QParamsError, match="its bounds do not match"):
        canonical(from_proto(proto))


def test_a_product_of_codes_beyond_float32_is_refused() -> None:
    """Integer kernels stay finite there, and a float graph would not."""
    proto = ZOO["qop_conv_matmul"]()
    node = next(n for n in proto.graph.node if n.op_type == "QLinearConv")
    scale = next(t for t in proto.graph.initializer if t.name == node.input[4])
    values = numpy_helper.to_array(scale).copy()
    values.reshape(-1)[0] = 3e38
    scale.CopyFrom(numpy_helper.from_array(values, scale.name))
    with pytest.raises(QParamsError, match="represent values beyond float32"):
        canonical(from_proto(proto))


def test_numbers_beyond_float32_are_infinite_without_a_warning() -> None:
    params = QParams("t", qtype("int8"), np.float32(3e38), 0)
    assert params.dequantize([-128, 1, 127]).tolist() == [-np.inf, np.float32(3e38), np.inf]
    scale, zero, codes = np.float32(3e38), np.int8(0), np.int8([[1, -1]])
    made = compute("QLinearMatMul", "", [codes, scale, zero, codes.T, scale, zero, scale, zero], {})
    assert made.shape == (1, 1)
    assert requantize(np.float64([1]), np.float32([2]), zero) == 2


# -- layers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("Gemm(x, w)", [4]),
        ("Gemm(x, w)", [1, 4, 4]),
        ("Conv(x, w)", [4]),
        ("ConvTranspose(x, w)", []),
        ("ConvTranspose<group=3>(x, w)", [4, 2, 3, 3]),
        ("ConvTranspose<group=0>(x, w)", [4, 2, 3, 3]),
    ],
)
def test_a_weight_of_another_rank_is_no_layer(call: str, shape: list[int]) -> None:
    model = parse(f"g (float[1,4,8,8] x, float w) => (float y) {{ y = {call} }}")
    weight = numpy_helper.from_array(np.ones(shape, np.float32), "w")
    proto = model.to_proto()
    del proto.graph.input[1]
    proto.graph.initializer.append(weight)
    layer = node_of(from_proto(proto), call.split("(")[0].split("<")[0])
    with pytest.raises(CannotFold):
        read_layer(layer)
    assert kind_of(layer) in ("Linear", layer.op)


def test_a_bias_of_nan_does_not_stop_lint() -> None:
    proto = ZOO["qdq_gemm"]()
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 1:
            values = numpy_helper.to_array(tensor).copy()
            node = next(n for n in proto.graph.node if tensor.name in n.input)
            if node.op_type == "Gemm":
                values[0] = np.nan
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    assert lint(from_proto(proto), "onnxruntime")


def test_blocks_of_less_than_nothing_are_not_written() -> None:
    text = (
        "g (float[4] x) => (float[4] y) <float s = {0.5}, int8 z = {0}> "
        "{ y = onnxq.FakeQuantize <quant_min=-128, quant_max=127, block_size=-1> (x, s, z) }"
    )
    model = from_proto(
        onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "onnxq" : 1]>\n{text}')
    )
    with pytest.raises(OnnxqError, match="blocks of -1 do not exist"):
        model.to_proto()


def test_a_zero_point_that_no_integer_holds_is_refused() -> None:
    for odd in (np.nan, np.inf, 3e38):
        with pytest.raises(QParamsError, match=r"zero point .* is not an integer"):
            QParams("t", qtype("int8"), 1.0, np.float64(odd))


@pytest.mark.parametrize(
    ("op", "shape"), [("QLinearGlobalAveragePool", (1, 2, 1)), ("QLinearReduceMean", (1, 1, 1))]
)
def test_the_mean_of_nothing_is_zero_without_a_warning(op: str, shape: tuple[int, ...]) -> None:
    codes, scale, zero = np.zeros((1, 2, 0), np.int8), np.float32(1), np.int8(0)
    made = compute(op, "com.microsoft", [codes, scale, zero, scale, zero], {})
    assert (made.shape, made.dtype, made.any()) == (shape, np.int8, np.False_)


def test_any_number_but_0_transposes() -> None:
    proto = ZOO["qop_contrib"]()
    node = next(n for n in proto.graph.node if n.op_type == "QGemm")
    flag = next(a for a in node.attribute if a.name == "transB")
    assert flag.i == 1
    flag.i = 2**40
    (gemm,) = canonical(from_proto(proto))[0].nodes("Gemm")
    assert gemm.attrs["transB"] == 1


def test_an_input_too_large_for_random_values_is_refused() -> None:
    proto = make(
        [helper.make_node("Relu", ["x"], ["y"])], [info("x", [2**40])], [info("y", [2**40])]
    )
    with pytest.raises(VerifyError, match=r"'x'.* the limit for random values"):
        verify(proto, proto)


@pytest.mark.parametrize("flag", ["signed", "narrow"])
def test_a_flag_that_is_neither_0_nor_1_is_refused(flag: str) -> None:
    proto = ZOO["qonnx_cnn"]()
    node = next(n for n in proto.graph.node if n.op_type == "Quant")
    next(a for a in node.attribute if a.name == flag).i = 2
    with pytest.raises(QParamsError, match=f"'{flag}' is 2, expected 0 or 1"):
        canonical(from_proto(proto))


def test_infinities_of_both_signs_give_no_warning() -> None:
    assert not all_finite(np.float64([np.inf, -np.inf]))
    assert all_finite(np.float64([1e308, 1e308, -1e308]))


def test_sums_of_products_with_one_number_are_refused() -> None:
    for odd in (np.int8(1), np.ones((4, 4), np.int32)):
        proto = ZOO["qop_integer_sums"]()
        node = next(n for n in proto.graph.node if n.op_type == "MatMulInteger")
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(odd), "odd"))
        node.input[1] = "odd"
        with pytest.raises(QParamsError, match=r"'odd'.* is not a weight in codes"):
            canonical(from_proto(proto))


def test_a_weight_whose_factors_do_not_fit_is_not_known() -> None:
    text = (
        "g (float[1,3,8,8] x) => (float[1,4,8,8] y) "
        "<float[4,3,3,3] w = {%s}, float[4] f = {1,2,3,4}> { p = Mul(w, f) y = Conv(x, p) }"
    )
    model = parse(text % ",".join("1" * 108))
    assert weight_value(node_of(model, "Conv").inputs[1]) is None


def test_sums_of_products_on_a_grid_without_steps_are_refused() -> None:
    proto = ZOO["qop_integer_sums"]()
    node = next(n for n in proto.graph.node if n.op_type == "QuantizeLinear")
    scale = next(t for t in proto.graph.initializer if t.name == node.input[1])
    scale.CopyFrom(numpy_helper.from_array(np.float32(0), scale.name))
    with pytest.raises(QParamsError, match=r"scale 0\.0 is not a positive finite number"):
        canonical(from_proto(proto))


def test_a_normalization_with_parameters_of_another_rank_is_not_folded() -> None:
    proto = ZOO["conv_bn_chain"]()
    node = next(n for n in proto.graph.node if n.op_type == "BatchNormalization")
    next(t for t in proto.graph.initializer if t.name == node.input[3]).dims.insert(0, 1)
    result = Pipeline(FoldAffine(), FoldBatchNorm()).run(from_proto(proto))
    reasons = [skip.reason for trace in result.traces for skip in trace.skips]
    assert any("its mean has shape (1, " in reason for reason in reasons)
