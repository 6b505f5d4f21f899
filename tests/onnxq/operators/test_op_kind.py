from __future__ import annotations

import pytest

from onnxq.graph import Model
from onnxq.operators.op_kind import gelu_of, is_bias_of, kind_of, weight_of
from tests.models.build import parse

LAYER = """g (float[2,3] x, float[3,4] z) => (float[2,4] y) <float[3,4] w = {
    1,2,3,4,5,6,7,8,9,10,11,12}, float[4] b = {1,2,3,4}, float[2,1] c = {1,2}> { %s }"""


def last(body: str) -> tuple[Model, object]:
    model = parse(LAYER % body)
    return model, model.nodes()[-1]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("y = MatMul(x, w)", "Linear"),
        ("y = MatMul(x, z)", "MatMul"),
        ("y = Gemm(x, w)", "Linear"),
        ("y = Gemm(x, z)", "MatMul"),
        ("y = Relu(x)", "Relu"),
        ("y = Erf(x)", None),
        ("y = Linear(x)", None),
        ("y = com.microsoft.Gelu(x)", None),
    ],
)
def test_the_operands_decide_where_the_operator_does_not(body: str, kind: str | None) -> None:
    _, node = last(body)
    assert kind_of(node) == kind


def test_a_lookup_in_a_constant_is_an_embedding_and_one_in_an_activation_selects() -> None:
    table = parse(
        """g (int64[2] i, float[5,3] x) => (float[2,3] y, float[2,3] z)
        <float[2,3] w = {1,2,3,4,5,6}> { y = Gather(w, i) z = Gather(x, i) }"""
    )
    embedding, selection = table.nodes("Gather")
    assert (kind_of(embedding), kind_of(selection)) == ("Embedding", "Gather")
    weight = weight_of(embedding)
    assert weight is not None
    assert weight.name == "w"
    assert weight_of(selection) is None


@pytest.mark.parametrize("order", ["m, b", "b, m"])
def test_the_add_behind_a_matmul_is_its_bias(order: str) -> None:
    model, node = last(f"m = MatMul(x, w) y = Add({order})")
    (layer,) = model.nodes("MatMul")
    assert is_bias_of(node) is layer


@pytest.mark.parametrize(
    "body",
    [
        "m = MatMul(x, w) y = Add(m, c)",
        "m = MatMul(x, z) y = Add(m, b)",
        "m = MatMul(x, w) r = Relu(m) y = Add(r, b)",
        "m = MatMul(x, w) y = Add(m, m)",
    ],
)
def test_other_adds_are_no_bias(body: str) -> None:
    _, node = last(body)
    assert is_bias_of(node) is None


@pytest.mark.parametrize(
    "body",
    [
        "d = Div(x, k) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)",
        "d = Mul(x, k) e = Erf(d) a = Add(one, e) m = Mul(a, half) y = Mul(m, x)",
        "d = Div(x, k) e = Erf(d) a = Add(e, one) h = Mul(x, half) y = Mul(h, a)",
    ],
)
def test_gelu_is_recognised_in_the_ways_it_is_spelled(body: str) -> None:
    constants = "float k = {1.414}, float one = {1}, float half = {0.5}"
    model = parse(f"g (float[4] x) => (float[4] y) <{constants}> {{ {body} }}")
    (erf,) = model.nodes("Erf")
    found = gelu_of(erf)
    assert found is not None
    x, nodes = found
    assert x.name == "x"
    assert nodes[-1].outputs[0].name == "y"
    assert len(nodes) == 5


def test_other_uses_of_erf_are_no_gelu() -> None:
    for body in ("y = Erf(x)", "d = Div(x, k) e = Erf(d) y = Mul(e, z)"):
        model = parse(f"g (float[4] x, float[4] z) => (float[4] y) <float k = {{2}}> {{ {body} }}")
        assert gelu_of(model.nodes("Erf")[0]) is None


@pytest.mark.parametrize(("values", "kind"), [("1, 1", "Pad"), ("1, 2", "ConvTranspose")])
def test_a_transposed_convolution_with_ones_only_spreads_values(values: str, kind: str) -> None:
    model = parse(
        f"""g (float[1,2,3,3] x) => (float[1,2,5,5] y) <float[2,1,1,1] w = {{{values}}}>
        {{ y = ConvTranspose <group = 2, strides = [2, 2]> (x, w) }}"""
    )
    assert kind_of(model.nodes()[0]) == kind
