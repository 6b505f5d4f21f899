from __future__ import annotations

import pytest

from onnxq.analysis.quantizer_places import QuantizerPlaces
from onnxq.operators.placement import INPUTS_ONLY, TOTAL_INTEGER, Placement, kinds
from tests.models.build import parse, quantize

BLOCK = """g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w = {1,2,3,4}> {
    c = Conv(x, w)
    r = Relu(c)
    p = MaxPool <kernel_shape = [1,1]> (r)
    d = Conv(p, w)
    s = Add(d, r)
    y = Relu(s)
}"""


def names(body: str, placement: Placement) -> list[tuple[str, ...]]:
    places = QuantizerPlaces(parse(body), placement).activations()
    return [tuple(t.name for t in place.tensors) for place in places]


def test_what_layers_read_is_quantized_where_it_was_made() -> None:
    assert names(BLOCK, INPUTS_ONLY) == [("x",), ("r",), ("d",)]


def test_outputs_are_quantized_behind_what_runs_inside_the_layer() -> None:
    assert names(BLOCK, TOTAL_INTEGER) == [("x",), ("r",), ("d",), ("y",)]


def test_an_accumulator_feeds_the_add_directly() -> None:
    accumulated = Placement(inputs=kinds("Conv Add"), accumulated=kinds("Conv"))
    assert names(BLOCK, accumulated) == [("x",), ("r",)]


def test_readers_that_need_equal_scales_share_one_place() -> None:
    unified = Placement(inputs=kinds("Conv Add"), unified=kinds("Add"))
    assert names(BLOCK, unified) == [("x",), ("r", "d")]


def test_the_rule_is_told() -> None:
    places = QuantizerPlaces(parse(BLOCK), TOTAL_INTEGER).activations()
    assert "(Conv producing 'c') reads codes" in places[0].rule
    assert "(Add producing 's') writes codes" in places[-1].rule


def test_the_ends_of_the_network_on_request() -> None:
    ends = Placement(inputs=kinds("Sigmoid"), graph_inputs=True, graph_outputs=True)
    assert names(BLOCK, ends) == [("x",), ("y",)]


def test_tensors_that_cannot_be_negative_are_marked() -> None:
    unsigned = Placement(inputs=kinds("Conv Add"), unsigned=True)
    places = QuantizerPlaces(parse(BLOCK), unsigned).activations()
    assert [(p.tensors[0].name, p.unsigned) for p in places] == [
        ("x", False), ("r", True), ("d", False),
    ]  # fmt: skip


PADS = "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>()"


@pytest.mark.parametrize(
    ("body", "quantized"),
    [
        ("r = Relu(x) m = DepthToSpace <blocksize = 2> (r)", "r"),
        ("r = Relu(x) m = SpaceToDepth <blocksize = 2> (r)", "r"),
        (f"{PADS} r = Relu(x) m = Pad(r, p)", "r"),
        (f"{PADS} v = Constant<value_float = 1.>() r = Relu(x) m = Pad(r, p, v)", "m"),
    ],
)
def test_only_what_moves_values_is_looked_through(body: str, quantized: str) -> None:
    """Rounding before a move is rounding after it; ones that Pad adds lie on no grid of r."""
    text = f"g (float[1,4,4,4] x) => (float y) {{ {body} y = Sigmoid(m) }}"
    assert names(text, Placement(inputs=kinds("Sigmoid"))) == [(quantized,)]


def test_a_global_maximum_reads_codes_as_others_do() -> None:
    body = "g (float[1,4,4,4] x) => (float y) { y = GlobalMaxPool(x) }"
    assert names(body, Placement(inputs=kinds("MaxPool"))) == [("x",)]


@pytest.mark.parametrize(
    ("body", "unsigned"),
    [
        ("r = Softplus(x)", True),
        ("a = Abs(x) e = Exp(x) r = Max(a, e)", True),
        (f"{PADS} v = Constant<value_float = -1.>() a = Relu(x) r = Pad(a, p, v)", False),
    ],
)
def test_signs_follow_from_operators(body: str, unsigned: bool) -> None:
    model = parse(f"g (float[1,4,4,4] x) => (float y) {{ {body} y = Sigmoid(r) }}")
    (place,) = QuantizerPlaces(
        model, Placement(inputs=kinds("Sigmoid"), unsigned=True)
    ).activations()
    assert (place.tensors[0].name, place.unsigned) == ("r", unsigned)


def test_a_number_among_the_operands_keeps_the_op_float_where_told() -> None:
    body = """g (float[4] x, float[4] z) => (float[4] y) <float k = {2}> {
        m = Mul(x, k) y = Mul(m, z) }"""
    assert names(body, Placement(inputs=kinds("Mul"), tensors_only=True)) == [("z",), ("m",)]
    assert names(body, Placement(inputs=kinds("Mul"))) == [("x",), ("z",), ("m",)]


def test_a_layer_of_rank_three_ends_with_its_bias() -> None:
    body = """g (float[1,2,2] x) => (float[1,2,2] y) <float[2,2] w = {1,2,3,4}, float[2] b = {1,2}>
    { m = MatMul(x, w) a = Add(m, b) y = MatMul(a, w) }"""
    both = Placement(inputs=kinds("Linear Add"), outputs=kinds("Linear"))
    assert names(body, both) == [("x",), ("a",), ("y",)]


def test_weights_are_listed_with_their_layers() -> None:
    places = QuantizerPlaces(parse(BLOCK), INPUTS_ONLY)
    assert [(n.outputs[0].name, w.name) for n, w in places.weights()] == [("c", "w"), ("d", "w")]


def test_a_graph_that_is_quantized_already_is_refused() -> None:
    with pytest.raises(ValueError, match="remove the quantizers"):
        QuantizerPlaces(quantize(parse(BLOCK), "r"), INPUTS_ONLY)
