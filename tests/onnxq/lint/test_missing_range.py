"""Tensors that a target quantizes and that have no range."""

import onnxq
from onnxq.graph import Model, from_proto
from onnxq.reading import canonical
from onnxq.workflows.lint_model import lint
from tests.models.build import parse
from tests.models.lint_cases import conv_net, found, where
from tests.models.networks import NETWORKS, samples


def shared_weight() -> Model:
    """Two layers read one weight: the first as codes, the second as it is."""
    return parse(
        """g (float[1,1,4,4] x) => (float[1,1,4,4] y)
        <float[1,1,1,1] wf = {0.5}, float s = {0.1}, int8 z = {0}> {
            xq = QuantizeLinear(x, s, z)
            xd = DequantizeLinear(xq, s, z)
            wq = QuantizeLinear(wf, s, z)
            wd = DequantizeLinear(wq, s, z)
            [c1] c = Conv(xd, wd)
            cq = QuantizeLinear(c, s, z)
            cd = DequantizeLinear(cq, s, z)
            [c2] d = Conv(cd, wf)
            dq = QuantizeLinear(d, s, z)
            y = DequantizeLinear(dq, s, z)
        }"""
    )


def test_a_result_without_a_range_is_named() -> None:
    missing = found(conv_net(out=False), "missing-range")
    assert where(missing) == ["active"]
    assert missing[0].severity == "warning"
    assert "writes codes" in missing[0].message


def test_a_target_that_does_not_ask_is_content() -> None:
    assert found(conv_net(out=False), "missing-range", "tensorrt") == []


def test_complete_models_miss_nothing() -> None:
    assert found(conv_net(), "missing-range") == []


def test_a_weight_that_one_of_its_layers_reads_as_it_is_has_no_range_there() -> None:
    """Under the user's name and in the same words, before the conversion and after it."""
    model = shared_weight()
    told = [
        lint(model, "onnxruntime").findings,
        lint(canonical(model)[0], "onnxruntime").findings,
        onnxq.convert(model, "onnxruntime").findings,
    ]
    for findings in told:
        (missing,) = [f for f in findings if f.rule == "missing-range"]
        assert missing.where == "wf"
        assert missing.message == "the weight of 'c2' (Conv) has no range"


def test_layers_that_a_recipe_keeps_in_float_are_no_warning() -> None:
    model = from_proto(NETWORKS["resnet"]())
    layer = list(model.nodes("Conv"))[2]  # it reads codes
    rules = [[layer.name, "float"]]
    made = onnxq.quantize(model, "onnxruntime", samples("resnet", 4), settings=rules, verify=False)
    found = [f for f in made.findings if f.rule == "missing-range"]
    assert {f.severity for f in found} == {"info"}
    assert any(layer.name in f.where for f in found)
    warned = [f.where for f in made.findings if f.severity == "warning"]
    assert not any(f"'{layer.name}'" in where for where in warned)


def test_arithmetic_of_shapes_needs_no_range() -> None:
    """Indices are not quantized; a file seldom says of them that they are integers."""
    model = parse(
        """g (float[N,3,H,W] x) => (float[N,C] y)
        <float[3,1] w = {1, 2, 3}, int64 first = {0}, int64 last = {2}, int64 two = {2},
        int64[1] axis = {0}> {
            [size] s = Shape(x)
            [pick] n = Gather<axis=0>(s, first)
            [high] h = Gather<axis=0>(s, last)
            [twice] m = Mul(h, two)
            [half] k = Div(m, two)
            a = Unsqueeze(n, axis)
            b = Unsqueeze(k, axis)
            [both] t = Concat<axis=0>(a, b)
            p = ReduceMean<axes=[2,3], keepdims=0>(x)
            [layer] z = MatMul(p, w)
            e = Expand(z, t)
            y = Relu(e)
        }"""
    )
    for backend in ("onnxruntime", "tensorrt", "openvino"):
        told = {name for f in lint(model, backend).findings for name in f.where.split()}
        assert not told & set("snhmkabt"), backend
