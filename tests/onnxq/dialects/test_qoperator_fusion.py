from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.running import sessions
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, metadata
from passes.to_qoperator import ToQoperator
from tests.checks.integers import canonical, rows_by_tensor
from tests.models.build import apply, ops, parse, quantize, reasons, run, weight

RNG = np.random.default_rng(3)
X = RNG.normal(0, 2, (2, 4, 6, 6)).astype(np.float32)


def layer(body: str, out: str = "float[2,4,6,6]", x: str = "float[2,4,6,6]") -> Model:
    """A float graph with the weights w (Conv), v (MatMul), u (Gemm, transB) and the bias b."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({x} x) => ({out} y) <int64[2] two = {{2, 4}}> {{ {body} }}"""
    )
    for name, shape in (
        ("w", (4, 4, 3, 3)),
        ("v", (6, 5)),
        ("u", (5, 6)),
        ("b", (4,)),
        ("d", (5,)),
    ):
        value = RNG.normal(0, 0.3, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    used = {i for n in model.graph.node for i in n.input}
    kept = [t for t in model.graph.initializer if t.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return from_proto(model)


CONV = "y = Conv <pads = [1,1,1,1]> (x, w, b)"
U8 = {"qtype": "uint8", "scale": np.float32(0.05), "zero_point": 120}
PC = {"scale": np.linspace(0.005, 0.01, 4, dtype=np.float32), "zero_point": np.zeros(4), "axis": 0}


def conv(body: str = CONV, out: dict[str, object] = U8) -> Model:
    return quantize(weight(quantize(layer(body), "x", **U8), "w", **PC), "y", **out)


def steps(one: Model, other: Model, scale: float, x: np.ndarray = X) -> float:
    (a,), (b,) = run(one, x), run(other, x)
    return float(np.abs(a - b).max() / scale)


def test_a_quantized_layer_is_one_integer_operator() -> None:
    model = conv()
    made, trace = apply(model, ToQoperator())
    assert ops(made) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear"]
    assert trace.skips == []
    assert steps(model, made, 0.05) <= 1.001
    (node,) = made.nodes("QLinearConv")
    scale = np.float32(0.05) * PC["scale"]
    bias = array(node.inputs[8])
    assert bias is not None
    assert bias.dtype == np.int32
    original = next(t for t in layer(CONV).nodes("Conv")[0].inputs if t.name == "b")
    assert original.values.shape == bias.shape
    assert np.abs(bias * scale).max() < 2


def test_an_int32_bias_of_the_right_scale_is_taken_over() -> None:
    model = parse(
        """g (float[1,2,2,2] x) => (float[1,1,2,2] y)
        <float s = {0.5}, uint8 z = {3}, int8[1,2,1,1] w = {5, -6}, float ws = {0.25},
         int8 wz = {0}, int32[1] b = {77}, float bs = {0.125}> {
            q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
            v = DequantizeLinear(w, ws, wz)  c = DequantizeLinear(b, bs)
            f = Conv(d, v, c)
            p = QuantizeLinear(f, s, z)  y = DequantizeLinear(p, s, z)
        }"""
    )
    made, _ = apply(canonical(model), ToQoperator())
    (node,) = made.nodes("QLinearConv")
    np.testing.assert_array_equal(array(node.inputs[8]), [77])


@pytest.mark.parametrize(
    ("body", "shape", "made"),
    [
        ("y = MatMul(x, v)", "float[2,4,6,5]", "QLinearMatMul"),
        ("y = Add(x, x)", "float[2,4,6,6]", "QLinearAdd"),
        ("y = Mul(x, x)", "float[2,4,6,6]", "QLinearMul"),
        ("y = Concat <axis = -1> (x, x)", "float[2,4,6,12]", "QLinearConcat"),
        ("y = AveragePool <kernel_shape = [2,2]> (x)", "float[2,4,5,5]", "QLinearAveragePool"),
        ("y = GlobalAveragePool(x)", "float[2,4,1,1]", "QLinearGlobalAveragePool"),
        ("y = LeakyRelu <alpha = 0.2> (x)", "float[2,4,6,6]", "QLinearLeakyRelu"),
        ("y = Sigmoid(x)", "float[2,4,6,6]", "QLinearSigmoid"),
        ("c = Greater(x, x) y = Where(c, x, x)", "float[2,4,6,6]", "QLinearWhere"),
    ],
)
def test_each_operator_has_its_integer_form(body: str, shape: str, made: str) -> None:
    model = quantize(quantize(layer(body, shape), "x", **U8), "y", **U8)
    if "v" in {t.name for n in model.nodes() for t in n.inputs}:
        weight(model, "v", scale=np.float32(0.01))
    written, trace = apply(model, ToQoperator())
    assert made in ops(written), reasons(trace)
    assert steps(model, written, 0.05) <= 1.001
    plain, _ = apply(model, ToQoperator(contrib=False))
    assert (made in ops(plain)) == (made == "QLinearMatMul"), "the one that ONNX itself has"


def test_gemm_has_alpha_and_a_bias() -> None:
    body = "y = Gemm <transB = 1, alpha = 0.5> (x, u, d)"
    model = layer(body, "float[2,5]", "float[2,6]")
    model = quantize(weight(quantize(model, "x", **U8), "u", scale=np.float32(0.01)), "y", **U8)
    made, trace = apply(model, ToQoperator())
    assert "QGemm" in ops(made), reasons(trace)
    x = RNG.normal(0, 2, (2, 6)).astype(np.float32)
    assert steps(model, made, 0.05, x) <= 1.001


def test_softmax_of_the_one_grid_there_is() -> None:
    share = {"qtype": "uint8", "scale": np.float32(1 / 256), "zero_point": 0}
    model = quantize(quantize(layer("y = Softmax(x)"), "x", **U8), "y", **share)
    made, _ = apply(model, ToQoperator())
    assert "QLinearSoftmax" in ops(made)
    assert steps(model, made, 1 / 256) <= 1.001
    other = quantize(quantize(layer("y = Softmax(x)"), "x", **U8), "y", **U8)
    made, trace = apply(other, ToQoperator())
    assert "Softmax" in ops(made)
    assert "1/256" in reasons(trace)


RELU = "c = Conv <pads = [1,1,1,1]> (x, w, b) y = Relu(c)"


def test_saturation_takes_the_place_of_relu() -> None:
    positive = {"qtype": "uint8", "scale": np.float32(0.05), "zero_point": 0}
    model = conv(RELU, positive)
    made, _ = apply(model, ToQoperator())
    assert ops(made) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear"]
    assert steps(model, made, 0.05) <= 1.001


def test_relu_stays_where_codes_below_zero_exist() -> None:
    made, trace = apply(conv(RELU), ToQoperator())
    assert "Relu" in ops(made)
    assert "the two clip differently" in reasons(trace)


@pytest.mark.parametrize(
    ("x", "w", "y", "why"),
    [
        ({"qtype": "int8"}, {"qtype": "uint8", "zero_point": 3}, {"qtype": "int8"}, "no kernel"),
        ({"qtype": "uint8"}, {}, {"qtype": "int8"}, "uint8 codes, its result int8"),
        ({"qtype": "int16"}, {}, {"qtype": "int16"}, "int16 codes"),
        ({"qtype": "int8"}, {"qtype": "int4"}, {"qtype": "int8"}, "int4 codes"),
        ({"qtype": "int8"}, PC | {"axis": 1}, {"qtype": "int8"}, "along output channels"),
        (
            {"qtype": "int8"},
            PC | {"zero_point": np.arange(4)},
            {"qtype": "int8"},
            "different zero points",
        ),
        ({**PC, "axis": 1}, {}, {"qtype": "int8"}, "activation with one scale per channel"),
    ],
)
def test_what_stays_float_says_why(
    x: dict[str, object], w: dict[str, object], y: dict[str, object], why: str
) -> None:
    model = quantize(weight(quantize(layer(CONV), "x", **x), "w", **w), "y", **y)
    made, trace = apply(model, ToQoperator())
    assert "Conv" in ops(made)
    assert why in reasons(trace)
    session = sessions.reference(made)
    assert session.run({"x": X})["y"].tobytes() == run(model, X)[0].tobytes()


def test_a_result_read_in_float_stays() -> None:
    body = CONV.replace("y =", "c =") + " y = Relu(c) z = Neg(c)"
    model = quantize(weight(quantize(layer(body), "x", **U8), "w"), "y", **U8)
    made, trace = apply(model, ToQoperator())
    assert "Conv" in ops(made)
    assert "not quantized" in reasons(trace)


def test_a_bias_beyond_int32_stays_float() -> None:
    model = conv()
    bias = model.nodes("Conv")[0].inputs[2]
    bias.values = np.full(4, 1e9, np.float32)
    made, trace = apply(model, ToQoperator())
    assert "Conv" in ops(made)
    assert "exceeds int32" in reasons(trace)


def test_narrow_ranges_survive() -> None:
    """Of activations as Clip on codes, of stored weights as metadata of the operator."""
    narrow = {"qtype": "uint8", "scale": np.float32(0.05), "zero_point": 60, "lo": 0, "hi": 127}
    model = quantize(layer(CONV), "x", **narrow)
    model = quantize(weight(model, "w", lo=-127, hi=127), "y", **narrow)
    made, _ = apply(model, ToQoperator())
    assert ops(made).count("Clip") == 2
    (node,) = made.nodes("QLinearConv")
    stated = metadata(node)
    assert (stated[f"{QUANT_MIN}.3"], stated[f"{QUANT_MAX}.3"]) == ("-127", "127")
    assert rows_by_tensor(canonical(made), biases=False) == rows_by_tensor(model)
