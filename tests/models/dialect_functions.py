"""Operators of other dialects as model-local functions, so that onnxruntime runs their files.

The bodies are the public definitions of the operators, written with elementary ONNX operators and
independently of the passes that read them: they are the oracle of those passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto, TensorProto, helper

from onnxq.dialects import mqbench
from onnxq.graph import Model, from_proto
from onnxq.pipeline import Pipeline
from passes.read_mqbench import ReadMqbench

QONNX, OPENVINO = "qonnx.custom_op.general", "org.openvinotoolkit"


def _attribute(name: str) -> list[NodeProto]:
    """An integer attribute of the function as a float tensor of the same name."""
    constant = helper.make_node("Constant", [], [f"{name}_int"])
    reference = AttributeProto(name="value_int", ref_attr_name=name, type=AttributeProto.INT)
    constant.attribute.append(reference)
    return [constant, helper.make_node("Cast", [f"{name}_int"], [name], to=TensorProto.FLOAT)]


def _lines(*lines: str) -> list[NodeProto]:
    """Nodes written as 'out = Op a b'."""
    nodes = []
    for line in lines:
        out, _, call = line.partition(" = ")
        op, *args = call.split()
        nodes.append(helper.make_node(op, args, [out]))
    return nodes


def _number(name: str, value: float) -> NodeProto:
    return helper.make_node("Constant", [], [name], value_float=value)


def quant(opset: int) -> FunctionProto:
    """QONNX's Quant with rounding mode ROUND."""
    body = [
        *_attribute("signed"),
        *_attribute("narrow"),
        _number("one", 1.0),
        _number("two", 2.0),
        *_lines(
            "exponent = Sub bitwidth signed",
            "power = Pow two exponent",
            "highest = Sub power one",
            "unsigned = Sub one signed",
            "cut = Mul narrow unsigned",
            "hi = Sub highest cut",
            "minus = Sub narrow power",
            "lo = Mul minus signed",
            "steps = Div x scale",
            "shifted = Add steps zeropt",
            "least = Max shifted lo",
            "clamped = Min least hi",
            "codes = Round clamped",
            "from_zero = Sub codes zeropt",
            "y = Mul from_zero scale",
        ),
    ]
    return helper.make_function(
        QONNX,
        "Quant",
        ["x", "scale", "zeropt", "bitwidth"],
        ["y"],
        body,
        [helper.make_opsetid("", opset)],
        attributes=["signed", "narrow", "rounding_mode"],
    )


def openvino_fake_quantize(opset: int) -> FunctionProto:
    """OpenVINO's FakeQuantize."""
    body = [
        *_attribute("levels"),
        _number("one", 1.0),
        *_lines(
            "steps = Sub levels one",
            "from_low = Sub x il",
            "width = Sub ih il",
            "share = Div from_low width",
            "position = Mul share steps",
            "level = Round position",
            "part = Div level steps",
            "out_width = Sub oh ol",
            "scaled = Mul part out_width",
            "inside = Add scaled ol",
            "below = LessOrEqual x il",
            "above = Greater x ih",
            "high = Where above oh inside",
            "y = Where below ol high",
        ),
    ]
    return helper.make_function(
        OPENVINO,
        "FakeQuantize",
        ["x", "il", "ih", "ol", "oh"],
        ["y"],
        body,
        [helper.make_opsetid("", opset)],
        attributes=["levels"],
    )


FUNCTIONS: dict[tuple[str, str], Callable[[int], FunctionProto]] = {
    (QONNX, "Quant"): quant,
    (OPENVINO, "FakeQuantize"): openvino_fake_quantize,
}


MQBENCH = {("", op) for op in (*mqbench.OPERATORS, mqbench.LOGARITHMIC)}
"""Private operators that no function can stand for."""


def _calls(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    for node in graph.node:
        yield node.domain, node.op_type
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _calls(attribute.g)


def runnable(model: Model | onnx.ModelProto) -> onnx.ModelProto:
    """The model with a function for every operator of another dialect that it calls."""
    source = model.to_proto() if isinstance(model, Model) else model
    if set(_calls(source.graph)) & MQBENCH:
        # ONNX's own domain takes no functions; the oracle is in test_mqbench.py.
        source = Pipeline(ReadMqbench()).run(from_proto(source)).model.to_proto()
    called = set(_calls(source.graph)) & FUNCTIONS.keys()
    called -= {(f.domain, f.name) for f in source.functions}
    if not called:
        return source
    newer = from_proto(source)
    newer.require_opset(15, "the functions are written in it")
    newer.require_ir(8, "model-local functions")
    proto = newer.to_proto()
    proto.functions.extend(FUNCTIONS[name](newer.opset) for name in sorted(called))
    missing = {domain for domain, _ in called} - {entry.domain for entry in proto.opset_import}
    proto.opset_import.extend(helper.make_opsetid(domain, 1) for domain in sorted(missing))
    return proto
