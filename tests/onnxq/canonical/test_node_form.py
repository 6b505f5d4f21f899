"""Nodes that do not have the form of their operator are refused when a model is read."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import AttributeProto, NodeProto, helper, numpy_helper

from onnxq.canonical.fake_quantize import DOMAIN, OP, params_of
from onnxq.canonical.local_functions import own_forms
from onnxq.canonical.node_form import standard_form
from onnxq.errors import InvalidModelError, QParamsError
from onnxq.graph import from_proto
from tests.models.protos import make, node_of

CONSTANTS = [
    numpy_helper.from_array(np.float32(0.5), "s"),
    numpy_helper.from_array(np.int8(0), "z"),
    numpy_helper.from_array(np.int64([1, 2]), "i"),
]


def refused(node: NodeProto) -> str:
    with pytest.raises(InvalidModelError) as caught:
        from_proto(make([node], initializer=CONSTANTS))
    assert "export it again" in caught.value.fix
    return caught.value.what


def quantizer(*inputs: str, **attributes: object) -> NodeProto:
    names = inputs or ("x", "s", "z")
    attributes = {"quant_min": -128, "quant_max": 127, **attributes}
    given = {k: v for k, v in attributes.items() if v is not None}
    return helper.make_node(OP, names, ["y"], "n", domain=DOMAIN, **given)


ODD = {
    "too few inputs": (helper.make_node("MatMul", ["x"], ["y"]), "has 1 inputs, expected 2"),
    "too many": (helper.make_node("Relu", ["x", "x"], ["y"]), "has 2 inputs, expected 1"),
    "blank": (helper.make_node("MatMul", ["x", ""], ["y"]), "lacks the required input 2"),
    "blank among many": (helper.make_node("Concat", ["x", ""], ["y"], axis=0), "required input 2"),
    "outputs": (helper.make_node("Relu", ["x"], ["y", "q"]), "has 2 outputs, expected 1"),
    "attribute": (helper.make_node("Cast", ["x"], ["y"]), "lacks the attribute 'to'"),
    "type": (helper.make_node("Flatten", ["x"], ["y"], axis=1.5), "'axis'.* not of type INT"),
    "list": (helper.make_node("Transpose", ["x"], ["y"], perm=1), "'perm'.* not of type INTS"),
    "canonical inputs": (quantizer("x", "s"), "'n' .FakeQuantize. has 2 inputs, expected 3"),
    "canonical blank": (quantizer("x", "s", ""), "lacks the required input 3"),
    "canonical bound": (quantizer(quant_min=None), "lacks the attribute 'quant_min'"),
    "canonical type": (quantizer(axis="1"), "'axis' that is not of type INT"),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_node_is_refused_by_name(what: str) -> None:
    node, message = ODD[what]
    assert re.search(message, refused(node))


def test_attributes_without_a_type_or_of_a_function_are_refused() -> None:
    for odd in (
        AttributeProto(name="axis", i=1),
        AttributeProto(name="axis", type=AttributeProto.INT, ref_attr_name="outer"),
    ):
        node = helper.make_node("Flatten", ["x"], ["y"])
        node.attribute.append(odd)
        assert "attribute 'axis' that is not of type INT" in refused(node)


def test_two_attributes_of_one_name_are_refused() -> None:
    node = helper.make_node("Flatten", ["x"], ["y"], axis=1)
    node.attribute.append(helper.make_attribute("axis", 0))
    assert "two attributes with the same name" in refused(node)


def test_a_node_may_have_the_form_of_any_version() -> None:
    """The stamp may be wrong, which 'correct-opset' sees to."""
    for nodes in (
        helper.make_node("ReduceMean", ["x"], ["y"], axes=[0]),
        helper.make_node("ReduceMean", ["x", "i"], ["y"]),
        helper.make_node("Clip", ["x"], ["y"], min=0.0),
        helper.make_node("Clip", ["x", "", "s"], ["y"]),
        helper.make_node("Relu", ["x"], ["y"], of_its_own="kept"),
    ):
        assert from_proto(make([nodes], initializer=CONSTANTS)).nodes()


def test_a_scale_may_be_told_elsewhere() -> None:
    form = standard_form("QuantizeLinear")
    assert form is not None
    assert form.inputs == (1, 3)
    assert form.needed == (0,)


def test_private_operators_have_no_form() -> None:
    assert standard_form("LearnablePerTensorAffine") is None


def test_forms_of_our_own_functions() -> None:
    form = own_forms()[OP]
    assert form.inputs == (3, 3)
    assert form.required == {"quant_min", "quant_max"}
    assert set(form.attributes) == {"quant_min", "quant_max", "axis", "block_size"}


def test_a_quantizer_of_integers_is_refused() -> None:
    model = from_proto(make([quantizer("i", "s", "z")], initializer=CONSTANTS))
    with pytest.raises(QParamsError, match="'i' is int64, which is not a float type"):
        params_of(node_of(model, f"{DOMAIN}::{OP}"))
    model = from_proto(make([quantizer("x", "i", "z")], initializer=CONSTANTS))
    with pytest.raises(QParamsError, match="'i' is int64, which is not a float type"):
        params_of(node_of(model, f"{DOMAIN}::{OP}"))
