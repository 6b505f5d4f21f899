"""Changes of a model: fields of any kind by reflection, and those that take more than one field.

Most make the file wrong in one place. Some keep what it means (another spelling of a tensor, nodes
in another order): these must not be refused for no reason, and must compute the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

Mutation = Callable[[ModelProto, random.Random], None]
"""Changes the model in place; one that finds nothing to change leaves it."""

_INTEGERS = (
    *(-1, 0, 1, 2, 3, 7, 127, 128, 255, 1000, -128, 2**31 - 1, 2**31, 2**40, -(2**40)),
    *(2**63 - 1, -(2**63)),
)
_FLOATS = (0.0, -0.0, -1.0, 0.5, 1e-45, 1e-38, 3e38, np.inf, -np.inf, np.nan)
_STRINGS = ("", "\x1b[2J", "a\nb", "x" * 300, "é", "/", "..", "\x00", " ", "NOTSET", "linear")
_SIZE = 64
"""Most entries of a repeated field of numbers that are looked at."""


# -- any field ---------------------------------------------------------------------------------


def _messages(message: Any, depth: int = 0) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE and depth < 12:
            for inner in value if _is_repeated(field) else (value,):
                yield from _messages(inner, depth + 1)


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(getattr(field, "is_repeated", False))


def change_field(proto: ModelProto, rng: random.Random) -> None:
    """One field of one message, set or not."""
    kinds: dict[str, list[Any]] = {}
    for message in _messages(proto):
        kinds.setdefault(message.DESCRIPTOR.name, []).append(message)
    # By type first: else nearly all attacks would meet dimensions.
    message = rng.choice(kinds[rng.choice(sorted(kinds))])
    field = rng.choice(message.DESCRIPTOR.fields)
    values = getattr(message, field.name)
    if not _is_repeated(field):
        _change_single(proto, message, field, rng)
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        _change_messages(proto, values, rng)
    else:
        _change_scalars(proto, field, values, rng)


def _change_single(
    proto: ModelProto, message: Any, field: FieldDescriptor, rng: random.Random
) -> None:
    if message.HasField(field.name) and rng.random() < 0.2:
        message.ClearField(field.name)
        return
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, field.name).SetInParent()
        return
    setattr(message, field.name, _value(proto, field, getattr(message, field.name), rng))


def _change_messages(proto: ModelProto, values: Any, rng: random.Random) -> None:
    if not len(values):
        values.add()
        return
    at, other = rng.randrange(len(values)), rng.randrange(len(values))
    match rng.randrange(5):
        case 0:
            del values[at]
        case 1:
            values.add().CopyFrom(values[at])
        case 2:
            kept = type(values[at])()
            kept.CopyFrom(values[at])
            values[at].CopyFrom(values[other])
            values[other].CopyFrom(kept)
        case 3:
            values[at].CopyFrom(values[other])
        case 4:
            values[at].Clear()


def _change_scalars(
    proto: ModelProto, field: FieldDescriptor, values: Any, rng: random.Random
) -> None:
    new = _value(proto, field, values[0] if len(values) else None, rng)
    if not len(values):
        values.append(new)
        return
    at = rng.randrange(min(len(values), _SIZE))
    match rng.randrange(4):
        case 0:
            del values[at]
        case 1:
            values.append(values[at])
        case 2:
            values.append(new)
        case 3:
            values[at] = new


def _value(proto: ModelProto, field: FieldDescriptor, old: Any, rng: random.Random) -> Any:
    """Another value for a field."""
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return rng.choice(_FLOATS)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice([rng.choice(_STRINGS), _some_name(proto, rng), f"{old or ''}x"])
    if field.type == FieldDescriptor.TYPE_BYTES:
        raw = bytes(old or b"")
        cut = rng.randrange(len(raw) + 1)
        more = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 8))))
        flipped = raw[:cut] + more[:1] + raw[cut + 1 :]
        return rng.choice([b"", raw[:cut], raw + more, flipped, b"\xff\xfe"])
    near = int(old or 0) + rng.choice((-2, -1, 1, 2))
    number = rng.choice([near, near, rng.randrange(28), rng.choice(_INTEGERS)])
    if field.type == FieldDescriptor.TYPE_INT32:
        return max(-(2**31), min(2**31 - 1, number))
    if field.type == FieldDescriptor.TYPE_UINT64:
        return number % 2**64
    return max(-(2**63), min(2**63 - 1, number))


def _some_name(proto: ModelProto, rng: random.Random) -> str:
    graph = proto.graph
    names = [n for node in graph.node for n in (*node.input, *node.output, node.name)]
    names += [t.name for t in graph.initializer] + [i.name for i in (*graph.input, *graph.output)]
    return rng.choice(sorted(set(names)) or [""])


# -- nodes -------------------------------------------------------------------------------------


def nodes_of(proto: ModelProto) -> list[onnx.NodeProto]:
    return [m for m in _messages(proto.graph) if isinstance(m, onnx.NodeProto)]


def swap_inputs(proto: ModelProto, rng: random.Random) -> None:
    """An input of a node is that of another node."""
    nodes = [n for n in nodes_of(proto) if n.input]
    if nodes:
        node, other = rng.choice(nodes), rng.choice(nodes)
        node.input[rng.randrange(len(node.input))] = rng.choice(other.input)


def change_inputs(proto: ModelProto, rng: random.Random) -> None:
    """A node has an input more or less, or a blank one."""
    nodes = [n for n in nodes_of(proto) if n.input]
    if not nodes:
        return
    node = rng.choice(nodes)
    at = rng.randrange(len(node.input))
    match rng.randrange(4):
        case 0:
            del node.input[at]
        case 1:
            node.input[at] = ""
        case 2:
            node.input.append(rng.choice(node.input))
        case 3:
            node.input[at] = "nobody_makes_this"


def change_operator(proto: ModelProto, rng: random.Random) -> None:
    """A node has the operator, or the domain, of another one."""
    nodes = nodes_of(proto)
    if nodes:
        node, other = rng.choice(nodes), rng.choice(nodes)
        if rng.random() < 0.3:
            node.domain = rng.choice(["onnxq", "com.microsoft", "ai.onnx", "", other.domain, "who"])
        else:
            node.op_type = rng.choice([other.op_type, "Identity", "FakeQuantize", "Relu", "Nobody"])


def drop_node(proto: ModelProto, rng: random.Random) -> None:
    """A node is gone, and its readers read what it read."""
    nodes = [n for n in proto.graph.node if n.input and n.output]
    if not nodes:
        return
    node = rng.choice(nodes)
    made, read = node.output[0], node.input[0]
    proto.graph.node.remove(node)
    for reader in proto.graph.node:
        for at, name in enumerate(reader.input):
            if name == made:
                reader.input[at] = read


def change_attribute(proto: ModelProto, rng: random.Random) -> None:
    """An attribute has another value, type or name, or is gone."""
    nodes = [n for n in nodes_of(proto) if n.attribute]
    if not nodes:
        return
    node = rng.choice(nodes)
    attribute = rng.choice(node.attribute)
    match rng.randrange(5):
        case 0:
            node.attribute.remove(attribute)
        case 1:
            attribute.type = rng.randrange(15)
        case 2:
            attribute.ref_attr_name = "outer"
        case 3:
            value = rng.choice([1, 0.5, "text", [1, 2], [0.5], -1, 2**40, [0, 0], [2**40]])
            attribute.CopyFrom(helper.make_attribute(attribute.name, value))
        case 4:
            _change_number(attribute, rng)


def _change_number(attribute: AttributeProto, rng: random.Random) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice([attribute.i + rng.choice((-1, 1)), rng.choice(_INTEGERS)])
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_INTEGERS[:9])
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(_FLOATS)


def add_attribute(proto: ModelProto, rng: random.Random) -> None:
    """A node has an attribute more, one that operators often have."""
    nodes = nodes_of(proto)
    if nodes:
        name = rng.choice(
            ["axis", "block_size", "quant_min", "perm", "group", "saturate", "channels_last", "to"]
        )
        value = rng.choice([0, 1, -1, 2, 0.5, "a", [1, 0]])
        rng.choice(nodes).attribute.append(helper.make_attribute(name, value))


def shuffle_nodes(proto: ModelProto, rng: random.Random) -> None:
    """Nodes in another order, which onnxq sorts."""
    nodes = list(proto.graph.node)
    rng.shuffle(nodes)
    kept = onnx.GraphProto(node=nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(kept.node)


# -- tensors -----------------------------------------------------------------------------------


def tensors_of(proto: ModelProto) -> list[TensorProto]:
    """All tensors of the graph, in attributes and bodies too."""
    return [m for m in _messages(proto.graph) if isinstance(m, TensorProto)]


def attributes_of(proto: ModelProto) -> list[AttributeProto]:
    """All attributes of the graph's nodes, in bodies too."""
    return [m for m in _messages(proto.graph) if isinstance(m, AttributeProto)]


def values_of(tensor: TensorProto) -> np.ndarray | None:
    """A copy of the values; None where they cannot be had."""
    if tensor.data_location == TensorProto.EXTERNAL or tensor.data_type == TensorProto.STRING:
        return None
    try:
        return numpy_helper.to_array(tensor).copy()
    except (KeyError, TypeError, ValueError):  # changed before
        return None


def change_value(proto: ModelProto, rng: random.Random) -> None:
    """A number in a tensor that scales are among: small float ones first."""
    tensors = [
        t for t in tensors_of(proto) if t.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16)
    ]
    small = [t for t in tensors if all(d < 20 for d in t.dims) and len(t.dims) < 2]
    tensors = small if small and rng.random() < 0.8 else tensors
    if not tensors:
        return
    tensor = rng.choice(tensors)
    values = values_of(tensor)
    if values is not None and values.size:
        with np.errstate(over="ignore"):
            values.reshape(-1)[rng.randrange(values.size)] = rng.choice(_FLOATS)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def change_type(proto: ModelProto, rng: random.Random) -> None:
    """Another type of a constant, its values kept where they fit."""
    kinds = (np.int8, np.uint8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64)
    tensors = tensors_of(proto)
    if tensors:
        tensor = rng.choice(tensors)
        values = values_of(tensor)
        if values is not None:
            with np.errstate(all="ignore"):
                new = values.astype(np.float64).astype(rng.choice(kinds))
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))


def change_shape(proto: ModelProto, rng: random.Random) -> None:
    """Another shape of a constant that holds as many values, or not."""
    tensors = tensors_of(proto)
    if not tensors:
        return
    tensor = rng.choice(tensors)
    match rng.randrange(5):
        case 0:
            tensor.dims.append(1)
        case 1:
            tensor.dims.insert(0, 1)
        case 2:
            dims = list(tensor.dims)
            rng.shuffle(dims)
            tensor.dims[:] = dims
        case 3:
            tensor.dims[:] = [int(np.prod(tensor.dims))]
        case 4:
            tensor.dims[:] = rng.choice([[], [0], [-1], [1, -1], [2**33, 2**33], [1] * 70])


def make_sparse(proto: ModelProto, rng: random.Random) -> None:
    """A constant as a sparse one, sound or with one fault."""
    tensors = [t for t in proto.graph.initializer if t.data_type == TensorProto.FLOAT]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    values = values_of(tensor)
    if values is None or not values.size:
        return
    flat = values.reshape(-1)
    where = np.flatnonzero(flat).astype(np.int64)
    if not where.size:
        return
    kept, dims = flat[where], list(values.shape) or [1]
    match rng.randrange(8):
        case 0:
            where[rng.randrange(where.size)] = rng.choice(_INTEGERS)
        case 1:
            where = where[:-1]
        case 2:
            dims[0] = rng.choice((-1, 0, 1, 2**40))
        case 3:
            where = where.astype(np.int32)
        case 4:
            where = np.stack(np.unravel_index(where, dims), axis=-1).astype(np.int64)
        case 5:
            where = where[:, None]
    proto.graph.initializer.remove(tensor)
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(kept, tensor.name), numpy_helper.from_array(where, "i"), dims
        )
    )


def make_external(proto: ModelProto, rng: random.Random) -> None:
    """A constant in the data file (see `DATA`), sound or with one fault."""
    tensors = [t for t in tensors_of(proto) if t.data_type == TensorProto.FLOAT]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    count = int(np.prod(tensor.dims, dtype=np.float64)) if tensor.dims else 1
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": "data.bin", "offset": "0", "length": str(4 * count)}
    if rng.random() < 0.8:
        bad = {
            "location": ["", ".", "..", "/etc/passwd", "x" * 300, "folder", "none", "a\0b", "é"],
            "offset": ["-1", "4096", "1e3", "", "9" * 30, "0x0", "8", " 0", "9" * 5000],
            "length": ["-4", "0", "3", "", "9" * 30, "4", str(4 * count + 1)],
        }
        key = rng.choice(sorted(bad))
        entries[key] = rng.choice(bad[key])
    for key, value in entries.items():
        if rng.random() < 0.95:
            tensor.external_data.add(key=key, value=value)


def respell_tensor(proto: ModelProto, rng: random.Random) -> None:
    """The values of a constant in its typed field instead of raw bytes: the same tensor."""
    tensors = [t for t in tensors_of(proto) if t.HasField("raw_data")]
    if tensors:
        tensor = rng.choice(tensors)
        values = values_of(tensor)
        typed = tensor.data_type in (TensorProto.FLOAT, TensorProto.INT8)
        if values is not None and typed and min(tensor.dims, default=0) >= 0:
            tensor.CopyFrom(
                helper.make_tensor(
                    tensor.name, tensor.data_type, tensor.dims, values.reshape(-1).tolist()
                )
            )


# -- the model ---------------------------------------------------------------------------------


def change_versions(proto: ModelProto, rng: random.Random) -> None:
    """Another opset or IR version, or none."""
    if rng.random() < 0.3 or not proto.opset_import:
        proto.ir_version = rng.choice([*range(14), *_INTEGERS])
    else:
        entry = rng.choice(proto.opset_import)
        entry.version = rng.choice([*range(1, 27), *_INTEGERS])


def change_declaration(proto: ModelProto, rng: random.Random) -> None:
    """A graph input, output or value info tells another type or shape."""
    graph = proto.graph
    infos = [*graph.input, *graph.output, *graph.value_info]
    if not infos:
        return
    tensor_type = rng.choice(infos).type.tensor_type
    match rng.randrange(5):
        case 0:
            tensor_type.elem_type = rng.randrange(28)
        case 1:
            tensor_type.ClearField("shape")
        case 2:
            tensor_type.shape.dim.add().dim_value = rng.choice((-1, 0, 1, 2**40))
        case 3 if tensor_type.shape.dim:
            rng.choice(tensor_type.shape.dim).dim_value = rng.choice((-1, 0, 1, 2, 5, 2**40))
        case _ if tensor_type.shape.dim:
            rng.choice(tensor_type.shape.dim).dim_param = rng.choice(("N", "x", ""))


def declare(proto: ModelProto, rng: random.Random) -> None:
    """A value info for some tensor, which is mostly wrong."""
    shape = rng.choice([None, [], [1], ["N"], [1, 2, 3], [-1], [2**40]])
    kind = rng.choice([TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT8, TensorProto.STRING])
    proto.graph.value_info.append(
        helper.make_tensor_value_info(_some_name(proto, rng), kind, shape)
    )


def add_function(proto: ModelProto, rng: random.Random) -> None:
    """Functions that call themselves or each other, are there twice, or are sound and unused."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)]

    def function(name: str, called: str, domain: str = "loc") -> onnx.FunctionProto:
        inner = "" if called in ("Relu", "Identity") else "loc"
        node = helper.make_node(called, ["x"], ["y"], domain=inner)
        return helper.make_function(domain, name, ["x"], ["y"], [node], imports)

    kinds = [
        [function("F", "F")],
        [function("F", "G"), function("G", "F")],
        [function("F", "Relu"), function("F", "Identity")],
        [function("F", "Relu")],
        [function("Relu", "Identity", "")],
        [function("F", "G"), function("G", "Identity")],
    ]
    proto.functions.extend(rng.choice(kinds))
    if rng.random() < 0.7:
        proto.opset_import.append(helper.make_opsetid("loc", 1))
    nodes = [n for n in proto.graph.node if n.op_type in ("Relu", "Identity")]
    if nodes and rng.random() < 0.5:
        node = rng.choice(nodes)
        node.op_type, node.domain = "F", "loc" if rng.random() < 0.9 else ""


def add_table(proto: ModelProto, rng: random.Random) -> None:
    """A table of onnxq's in the metadata, mostly with a fault."""
    name = _some_name(proto, rng).replace("\\", "").replace('"', "")
    row = f'{{"tensor": "{name}", "type": "int8", "scale": 0.5, "zero_point": 0, "role": "bias"}}'
    text = rng.choice(
        ["", "{}", "[]", "null", "1e999", "NaN", '{"version": 1}', "[" * 100, row, f"[{row}]"]
    )
    proto.metadata_props.add(key="onnxq.qparams", value=text)


def rename(proto: ModelProto, rng: random.Random) -> None:
    """A tensor has another name wherever it occurs: the same model, unless the name is taken."""
    names = [n for node in proto.graph.node for n in (*node.input, *node.output) if n]
    names = [n for n in names if n not in {i.name for i in proto.graph.input}]
    if not names:
        return
    old = rng.choice(names)
    new = rng.choice([*_STRINGS[1:], _some_name(proto, rng)])
    for message in _messages(proto.graph):
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_STRING and field.name in ("name", "tensor_name"):
                if value == old and not isinstance(message, onnx.NodeProto | AttributeProto):
                    setattr(message, field.name, new)
            elif field.name in ("input", "output") and isinstance(message, onnx.NodeProto):
                for at, name in enumerate(value):
                    if name == old:
                        value[at] = new


def constant_node(proto: ModelProto, rng: random.Random) -> None:
    """An initializer as a Constant node: the same model."""
    tensors = list(proto.graph.initializer)
    if tensors:
        tensor = rng.choice(tensors)
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        proto.graph.initializer.remove(tensor)
        proto.graph.node.insert(0, node)


def list_as_input(proto: ModelProto, rng: random.Random) -> None:
    """An initializer listed as a graph input."""
    if proto.graph.initializer:
        tensor = rng.choice(proto.graph.initializer)
        proto.graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        )


MUTATIONS: tuple[Mutation, ...] = (
    *(change_field, change_field, change_field, change_field, swap_inputs, change_inputs),
    *(change_operator, drop_node, change_attribute, change_attribute, add_attribute),
    *(shuffle_nodes, change_value, change_value, change_type, change_shape, make_sparse),
    *(make_external, respell_tensor, change_versions, change_declaration, declare),
    *(add_function, add_table, rename, constant_node, list_as_input),
)

DATA = np.random.default_rng(0).uniform(0.01, 1.0, 1024).astype(np.float32).tobytes()
"""The content of data.bin, which external tensors lie in."""


def flip_bytes(content: bytes, rng: random.Random) -> bytes:
    """The file with some bytes changed, cut off or added."""
    if not content:
        return content
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    match rng.randrange(8):
        case 0:
            del changed[rng.randrange(len(changed)) :]
        case 1:
            changed += bytes(rng.randrange(256) for _ in range(5))
    return bytes(changed)
