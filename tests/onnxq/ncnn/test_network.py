"""What stands between the layers: rounding for other readers, copies, names."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.ncnn import reader, writer
from onnxq.ncnn.network import Network, NotInNcnn, checked, dims, inverse
from onnxq.ncnn.program import read_param
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from passes.infer_shapes import InferShapes
from tests.models.build import apply, parse, quantize, run, weight

SHARED = """g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float[2,2,1,1] w = {1, -0.5, 0.25, 2}> {
    c = Conv(x, w)
    y = Add(c, x)
}"""


def kinds(layers: object) -> list[str]:
    return [layer.type for layer in layers]  # type: ignore[attr-defined]


def test_other_readers_of_a_quantized_tensor_see_it_rounded() -> None:
    model = apply(parse(SHARED), InferShapes())[0]
    quantize(weight(model, "w", lo=-127, scale=0.02), "x", lo=-127, scale=0.3)
    layers = writer.layers_of(model)
    assert kinds(layers) == [
        *("Input", "Split", "Convolution", "Quantize", "Cast", "BinaryOp", "BinaryOp"),
    ]
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 3)).astype(np.float32)
    (want,), (got,) = run(model, x), run(reader.model_of(layers), x)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_int8_layers_alone_need_no_other_layer() -> None:
    model = apply(parse(SHARED.replace("Add(c, x)", "Relu(c)")), InferShapes())[0]
    quantize(weight(model, "w", lo=-127, scale=0.02), "x", lo=-127, scale=0.3)
    assert kinds(writer.layers_of(model)) == ["Input", "Convolution", "ReLU"]


def test_a_quantized_output_is_rounded() -> None:
    model = apply(parse("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }"), InferShapes())[0]
    quantize(model, "y", lo=-127, scale=0.3)
    layers = writer.layers_of(model)
    assert kinds(layers)[-3:] == ["Quantize", "Cast", "BinaryOp"]
    assert layers[-1].tops == ("y",)


def test_every_blob_has_one_reader_at_most() -> None:
    model = apply(parse(SHARED), InferShapes())[0]
    read = [blob for layer in writer.layers_of(model) for blob in layer.bottoms]
    assert len(read) == len(set(read))


def test_names_with_spaces_and_long_ones_become_readable() -> None:
    net = Network(parse(SHARED))
    first, second = net.temporary("a b"), net.temporary("a b")
    assert (first, second) == ("a_b", "a_b_1")
    net.add("Input", "ö" * 300, [], [first])
    net.add("Input", "", [], [second])
    from onnxq.ncnn.program import write_param

    assert len(read_param(write_param(net.layers))) == 2


@pytest.mark.parametrize(
    "fields",
    [{"lo": -128}, {"zero_point": 3}, {"qtype": "uint8", "lo": 0}, {"axis": 1, "scale": [1, 2]}],
)
def test_grids_that_ncnn_does_not_have(fields: dict[str, object]) -> None:
    given = {"qtype": "int8", "scale": 1.0, "zero_point": 0, "lo": -127, **fields}
    given["qtype"] = qtype(str(given["qtype"]))
    with pytest.raises(NotInNcnn, match="'t'"):
        checked(QParams("t", **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["2,4", "1,N", "1,1,2,2,2,2"])
def test_shapes_that_ncnn_does_not_have(shape: str) -> None:
    model = parse(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Relu(x) }}")
    with pytest.raises(NotInNcnn, match="'x'"):
        Network(model).shape(model.graph.inputs[0])


def test_small_parts() -> None:
    assert dims((3, 4, 5)) == {0: 5, 1: 4, 2: 3}
    assert dims((2, 3, 4, 5)) == {0: 5, 1: 4, 11: 3, 2: 2}
    np.testing.assert_array_equal(inverse(np.array([0.5, 4.0], np.float32)), [2.0, 0.25])


def test_a_step_whose_inverse_is_beyond_float32() -> None:
    with pytest.raises(NotInNcnn, match="beyond float32"):
        inverse(np.float32([0.1, 1e-40]))
