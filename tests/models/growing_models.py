"""Models of any size, each large in one way only: what work must grow in proportion to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

Build = Callable[[int], ModelProto]

OPSET = 17
_node = helper.make_node


def _float(name: str, shape: Sequence[int] = (1, 4)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _stored(name: str, values: object, dtype: type = np.float32) -> TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(values, dtype), name)


def _model(
    nodes: Iterable[NodeProto],
    outputs: Iterable[str],
    stored: Iterable[TensorProto] = (),
    inputs: Iterable[str] = ("x",),
    functions: Iterable[FunctionProto] = (),
) -> ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", [_float(n) for n in inputs], [_float(n) for n in outputs], list(stored)
    )
    opsets = [helper.make_opsetid("", OPSET)]
    functions = list(functions)
    opsets += [helper.make_opsetid(d, 1) for d in sorted({f.domain for f in functions})]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets, functions=functions)


GRID = (_stored("s", 0.05), _stored("z", 0, np.int8))


def _pair(source: str, made: str, scale: str = "s", zero: str = "z") -> list[NodeProto]:
    return [
        _node("QuantizeLinear", [source, scale, zero], [f"{made}_q"], f"{made}/quantize"),
        _node("DequantizeLinear", [f"{made}_q", scale, zero], [made], f"{made}/dequantize"),
    ]


def shared_scale(size: int) -> ModelProto:
    """Quantizers in a chain, all on one scale and one zero point."""
    nodes: list[NodeProto] = []
    for i in range(size):
        nodes += _pair(f"x{i}" if i else "x", f"d{i}")
        nodes.append(_node("Relu", [f"d{i}"], [f"x{i + 1}"], f"relu{i}"))
    return _model(nodes, [f"x{size}"], GRID)


def own_scales(size: int) -> ModelProto:
    """Quantizers in a chain, each with parameters of its own: three times as many initializers."""
    nodes: list[NodeProto] = []
    stored: list[TensorProto] = []
    for i in range(size):
        stored += [_stored(f"s{i}", 0.05), _stored(f"z{i}", 0, np.int8)]
        nodes += _pair(f"x{i}" if i else "x", f"d{i}", f"s{i}", f"z{i}")
        nodes.append(_node("Relu", [f"d{i}"], [f"x{i + 1}"], f"relu{i}"))
    return _model(nodes, [f"x{size}"], stored)


def shared_weight(size: int) -> ModelProto:
    """One quantized weight and one bias, read by every layer."""
    stored = [*GRID, _stored("w", np.eye(4)), _stored("b", np.zeros(4))]
    nodes = _pair("w", "wd")
    for i in range(size):
        nodes += _pair(f"x{i}" if i else "x", f"d{i}")
        nodes.append(_node("Gemm", [f"d{i}", "wd", "b"], [f"x{i + 1}"], f"gemm{i}"))
    return _model(nodes, [f"x{size}"], stored)


def shared_initializer(size: int) -> ModelProto:
    """One initializer read by every node."""
    nodes = [_node("Mul", [f"x{i}" if i else "x", "m"], [f"x{i + 1}"]) for i in range(size)]
    return _model(nodes, [f"x{size}"], [_stored("m", np.ones(4))])


def fan_out(size: int) -> ModelProto:
    """One quantized tensor with many readers, each with a quantizer behind it."""
    nodes = _pair("x", "d")
    for i in range(size):
        nodes.append(_node("Relu", ["d"], [f"r{i}"], f"relu{i}"))
        nodes += _pair(f"r{i}", f"e{i}")
    nodes.append(_node("Sum", [f"e{i}" for i in range(size)], ["y"], "sum"))
    return _model(nodes, ["y"], GRID)


def fan_out_quantizers(size: int) -> ModelProto:
    """One tensor that many quantizers read."""
    nodes: list[NodeProto] = []
    for i in range(size):
        nodes += _pair("x", f"e{i}")
    nodes.append(_node("Max", [f"e{i}" for i in range(size)], ["y"], "max"))
    return _model(nodes, ["y"], GRID)


def _joined(op: str, size: int, **attributes: object) -> ModelProto:
    nodes: list[NodeProto] = []
    for i in range(size):
        nodes += _pair(f"x{i}", f"e{i}")
    nodes.append(_node(op, [f"e{i}" for i in range(size)], ["j"], "join", **attributes))
    nodes += _pair("j", "y")
    return _model(nodes, ["y"], GRID, [f"x{i}" for i in range(size)])


def wide_concat(size: int) -> ModelProto:
    """A Concat of many quantized inputs."""
    return _joined("Concat", size, axis=0)


def wide_sum(size: int) -> ModelProto:
    """A Sum of many quantized inputs."""
    return _joined("Sum", size)


def wide_split(size: int) -> ModelProto:
    """A Split into many quantized pieces, all of them outputs."""
    nodes = _pair("x", "d")
    nodes.append(_node("Split", ["d", "n"], [f"p{i}" for i in range(size)], "split", axis=0))
    for i in range(size):
        nodes += _pair(f"p{i}", f"y{i}")
    stored = [*GRID, _stored("n", [1] * size, np.int64)]
    return _model(nodes, [f"y{i}" for i in range(size)], stored)


def initializers(size: int) -> ModelProto:
    """As many initializers as nodes, each read once."""
    stored = [_stored(f"m{i}", np.full(4, i % 7)) for i in range(size)]
    nodes = [_node("Mul", [f"x{i}" if i else "x", f"m{i}"], [f"x{i + 1}"]) for i in range(size)]
    return _model([*nodes, *_pair(f"x{size}", "y")], ["y"], [*stored, *GRID])


def weights(size: int) -> ModelProto:
    """Quantized layers, each with weight, bias and parameters of its own."""
    nodes: list[NodeProto] = []
    stored: list[TensorProto] = []
    for i in range(size):
        stored += [_stored(f"s{i}", 0.05), _stored(f"z{i}", 0, np.int8)]
        stored += [_stored(f"t{i}", 0.02), _stored(f"o{i}", 0, np.int8)]
        stored += [_stored(f"w{i}", np.eye(4)), _stored(f"b{i}", np.zeros(4))]
        nodes += _pair(f"x{i}" if i else "x", f"d{i}", f"s{i}", f"z{i}")
        nodes += _pair(f"w{i}", f"wd{i}", f"t{i}", f"o{i}")
        nodes.append(_node("Gemm", [f"d{i}", f"wd{i}", f"b{i}"], [f"g{i}"], f"gemm{i}"))
        nodes.append(_node("Relu", [f"g{i}"], [f"x{i + 1}"], f"relu{i}"))
    return _model(nodes, [f"x{size}"], stored)


def unused_initializers(size: int) -> ModelProto:
    """Initializers that nobody reads."""
    stored = [_stored(f"m{i}", np.full(4, i % 7)) for i in range(size)]
    return _model(_pair("x", "y"), ["y"], [*stored, *GRID])


def chain(size: int) -> ModelProto:
    """Plain nodes one after another, without a name."""
    nodes = _pair("x", "x0")
    nodes += [_node("Relu", [f"x{i}"], [f"x{i + 1}"]) for i in range(size)]
    return _model([*nodes, *_pair(f"x{size}", "y")], ["y"], GRID)


def moving_chain(size: int) -> ModelProto:
    """Operators that only move values, between two quantizers."""
    nodes = _pair("x", "x0")
    for i in range(size):
        nodes.append(_node("Transpose", [f"x{i}"], [f"x{i + 1}"], f"t{i}", perm=[0, 1]))
    return _model([*nodes, *_pair(f"x{size}", "y")], ["y"], GRID)


def sums(size: int) -> ModelProto:
    """Each sum adds the one before it to itself: as many ways through as 2 to the size."""
    nodes = _pair("x", "x0")
    for i in range(size):
        nodes += [
            _node("Add", [f"x{i}", f"x{i}"], [f"a{i}"], f"add{i}"),
            *_pair(f"a{i}", f"x{i + 1}"),
        ]
    return _model(nodes, [f"x{size}"], GRID)


def plain_sums(size: int) -> ModelProto:
    """The same without quantizers in between."""
    nodes = _pair("x", "x0")
    nodes += [_node("Add", [f"x{i}", f"x{i}"], [f"x{i + 1}"], f"add{i}") for i in range(size)]
    return _model([*nodes, *_pair(f"x{size}", "y")], ["y"], GRID)


def nested_bodies(size: int) -> ModelProto:
    """Three If inside one another, each body with nodes of its own that read the outermost graph.

    Only their number grows: protobuf itself refuses more than 33 bodies inside one another.
    """

    def body(name: str, result: str, inner: Iterable[NodeProto] = ()) -> GraphProto:
        nodes = [n for i in range(size) for n in _pair("x", f"{name}{i}")]
        nodes.append(_node("Max", [f"{name}{i}" for i in range(size)], [f"{name}max"]))
        nodes += inner
        nodes.append(_node("Relu", [f"{name}max"], [result]))
        return helper.make_graph(nodes, name, [], [_float(result)])

    node: list[NodeProto] = []
    for i in range(3):
        yes, no = body(f"yes{i}", f"u{i}", node), body(f"no{i}", f"v{i}")
        node = [_node("If", ["c"], [f"w{i}"], f"if{i}", then_branch=yes, else_branch=no)]
    return _model(node, ["w2"], [*GRID, _stored("c", True, bool)])


def many_bodies(size: int) -> ModelProto:
    """Many If nodes one after another, each with quantizers inside that read outer scales."""
    nodes: list[NodeProto] = []
    for i in range(size):
        source = f"x{i}" if i else "x"
        yes = helper.make_graph(_pair(source, f"a{i}"), f"then{i}", [], [_float(f"a{i}")])
        no = helper.make_graph([_node("Relu", [source], [f"b{i}"])], "e", [], [_float(f"b{i}")])
        nodes.append(_node("If", ["c"], [f"x{i + 1}"], f"if{i}", then_branch=yes, else_branch=no))
    return _model(nodes, [f"x{size}"], [*GRID, _stored("c", True, bool)])


def many_inputs_and_outputs(size: int) -> ModelProto:
    """Many inputs, each quantized and returned."""
    nodes = [n for i in range(size) for n in _pair(f"x{i}", f"y{i}")]
    names = range(size)
    return _model(nodes, [f"y{i}" for i in names], GRID, [f"x{i}" for i in names])


def same_output_tensor(size: int) -> ModelProto:
    """One quantized tensor that leaves through many Identity nodes."""
    nodes = _pair("x", "d")
    nodes += [_node("Identity", ["d"], [f"y{i}"]) for i in range(size)]
    return _model(nodes, [f"y{i}" for i in range(size)], GRID)


def _function(name: str, nodes: Iterable[NodeProto]) -> FunctionProto:
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["a"], ["b"], list(nodes), opsets)


def functions(size: int) -> ModelProto:
    """Many functions of the model, each called once."""
    # Names as long as each other: comparing those of different lengths takes no time.
    made = [_function(f"f{i:05}", [_node("Relu", ["a"], ["b"])]) for i in range(size)]
    nodes = _pair("x", "x0")
    nodes += [_node(f"f{i:05}", [f"x{i}"], [f"x{i + 1}"], domain="local") for i in range(size)]
    return _model([*nodes, *_pair(f"x{size}", "y")], ["y"], GRID, functions=made)


def calls(size: int) -> ModelProto:
    """One function called many times, with quantizers inside."""
    scale = [
        _node("Constant", [], ["s"], value=_stored("", 0.05)),
        _node("Constant", [], ["z"], value=_stored("", 0, np.int8)),
    ]
    made = _function("f", [*scale, *_pair("a", "b")])
    nodes = [
        _node("f", [f"x{i}" if i else "x"], [f"x{i + 1}"], domain="local") for i in range(size)
    ]
    return _model(nodes, [f"x{size}"], functions=[made])


def function_chain(size: int) -> ModelProto:
    """Functions that call one another, `size` deep."""
    made = [_function("f0", [_node("Relu", ["a"], ["b"])])]
    made += [
        _function(f"f{i}", [_node(f"f{i - 1}", ["a"], ["b"], domain="local")])
        for i in range(1, size)
    ]
    nodes = [*_pair("x", "d"), _node(f"f{size - 1}", ["d"], ["r"], domain="local")]
    return _model([*nodes, *_pair("r", "y")], ["y"], GRID, functions=made)


def opsets_and_metadata(size: int) -> ModelProto:
    """Many imported domains and many entries of metadata."""
    model = _model(_pair("x", "y"), ["y"], GRID)
    model.opset_import.extend(helper.make_opsetid(f"domain{i}", 1) for i in range(size))
    helper.set_model_props(model, {f"key{i}": "value" for i in range(size)})
    return model


def value_infos(size: int) -> ModelProto:
    """The type of every tensor declared, and as many of tensors that are not there."""
    model = shared_scale(size)
    for i in range(size):
        model.graph.value_info.extend([_float(f"d{i}"), _float(f"gone{i}")])
    return model


def long_prefixes(size: int) -> ModelProto:
    """Names that are taken already by the numbers that a new name would get."""
    nodes: list[NodeProto] = []
    for i in range(size):
        nodes += _pair(f"x_{i}" if i else "x", f"x.q_{i}", f"x_scale_{i}", "z")
        nodes.append(_node("Relu", [f"x.q_{i}"], [f"x_{i + 1}"], f"x_{i}"))
    stored = [GRID[1], *(_stored(f"x_scale_{i}", 0.05) for i in range(size))]
    return _model(nodes, [f"x_{size}"], stored)


def same_node_names(size: int) -> ModelProto:
    """Every node has the same name."""
    model = weights(size)
    for node in model.graph.node:
        node.name = "node"
    return model


SHAPES: dict[str, Build] = {
    build.__name__: build
    for build in (
        shared_scale,
        own_scales,
        shared_weight,
        shared_initializer,
        fan_out,
        fan_out_quantizers,
        wide_concat,
        wide_sum,
        wide_split,
        initializers,
        weights,
        unused_initializers,
        chain,
        moving_chain,
        sums,
        plain_sums,
        nested_bodies,
        many_bodies,
        many_inputs_and_outputs,
        same_output_tensor,
        functions,
        calls,
        function_chain,
        opsets_and_metadata,
        value_infos,
        long_prefixes,
        same_node_names,
    )
}
