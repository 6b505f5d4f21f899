"""Whether two models say the same, whatever the order in which protobuf lists it.

What has no order in ONNX (initializers, value infos, attributes, opset imports, metadata,
functions, quantization annotations) is sorted by name, fields that hold their default are
cleared, and the deterministic bytes are compared: NaN equals NaN and 0.0 differs from -0.0.
Nodes, inputs and outputs must stand in the same order. A value info or opset import that stands
there twice, word for word, counts once.
"""

from __future__ import annotations

from typing import Any

from onnx import GraphProto, ModelProto, TensorProto

# What identifies an entry of a repeated field without order; the rest keeps its order.
_UNORDERED = {
    "initializer": ("name",),
    "sparse_initializer": ("values", "name"),
    "value_info": ("name",),
    "quantization_annotation": ("tensor_name",),
    "attribute": ("name",),
    "attribute_proto": ("name",),
    "opset_import": ("domain",),
    "metadata_props": ("key",),
    "external_data": ("key",),
    "functions": ("domain", "name", "overload"),
}


def normal(message: Any, *, sort_nodes: bool = False) -> Any:
    """A copy of a protobuf message in the order and spelling that `differences` compares."""
    copy = type(message)()
    copy.CopyFrom(message)
    _normalise(copy, sort_nodes)
    return copy


def differences(
    left: ModelProto, right: ModelProto, *, sort_nodes: bool = False, limit: int = 10
) -> list[str]:
    """Where two models differ, as paths with both values; empty when they say the same.

    `sort_nodes` is for files whose nodes do not stand in a valid order.
    """
    if _bytes(left) == _bytes(right):
        return []
    a, b = normal(left, sort_nodes=sort_nodes), normal(right, sort_nodes=sort_nodes)
    if _bytes(a) == _bytes(b):
        return []
    found: list[str] = []
    _compare(a, b, "model", found)
    return found[:limit] or ["model: bytes differ in fields this onnx release does not know"]


def assert_same(left: ModelProto, right: ModelProto, *, sort_nodes: bool = False) -> None:
    """Fail with the list of differences."""
    found = differences(left, right, sort_nodes=sort_nodes)
    assert not found, "\n".join(found)


def is_sorted(graph: GraphProto, outer: frozenset[str] = frozenset()) -> bool:
    """Whether every node of the graph and its bodies stands behind what it reads."""
    known = set(outer) | {i.name for i in graph.input} | {t.name for t in graph.initializer}
    known |= {t.values.name for t in graph.sparse_initializer} | {""}
    for node in graph.node:
        if not known.issuperset(node.input):
            return False
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if not is_sorted(body, frozenset(known)):
                    return False
        known.update(node.output)
    return True


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def _normalise(message: Any, sort_nodes: bool) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None:
            for entry in value if field.is_repeated else [value]:
                _normalise(entry, sort_nodes)
        elif not field.is_repeated and field.name != "dim_value" and _is_default(field, value):
            message.ClearField(field.name)
            continue
        key = _UNORDERED.get(field.name) if field.message_type is not None else None
        if sort_nodes and field.name == "node":
            key = ("output",)
        if field.is_repeated and key is not None:
            entries = sorted(value, key=lambda entry, key=key: (_key(entry, key), _bytes(entry)))
            raw = [_bytes(entry) for entry in entries]
            if field.name in ("value_info", "opset_import"):
                raw = list(dict.fromkeys(raw))
            copies = [field.message_type._concrete_class.FromString(data) for data in raw]
            message.ClearField(field.name)
            getattr(message, field.name).extend(copies)
    if isinstance(message, TensorProto) and message.data_location == TensorProto.DEFAULT:
        message.ClearField("data_location")


def _is_default(field: Any, value: Any) -> bool:
    return repr(value) == repr(field.default_value)  # by repr: -0.0 is not the default 0.0


def _key(entry: Any, path: tuple[str, ...]) -> str:
    if path == ("values", "name"):
        return str(entry.values.name)
    return "\0".join(str(getattr(entry, part)) for part in path)


def _compare(left: Any, right: Any, path: str, found: list[str]) -> None:
    names = {f.name: f for f, _ in (*left.ListFields(), *right.ListFields())}
    for name, field in names.items():
        a, b = getattr(left, name), getattr(right, name)
        if field.message_type is None:
            if repr(a) != repr(b):
                found.append(f"{path}.{name}: {_short(a)} != {_short(b)}")
        elif not field.is_repeated:
            if left.HasField(name) != right.HasField(name):
                found.append(f"{path}.{name}: only on one side")
            else:
                _compare(a, b, f"{path}.{name}", found)
        elif len(a) != len(b):
            found.append(f"{path}.{name}: {_names(a)} != {_names(b)}")
        else:
            for index, (x, y) in enumerate(zip(a, b, strict=True)):
                if _bytes(x) != _bytes(y):
                    _compare(x, y, f"{path}.{name}[{index}]", found)


def _names(entries: Any) -> list[str]:
    return [str(getattr(e, "name", "") or _short(e)) for e in entries][:20]


def _short(value: Any) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 120 else text[:117] + "..."
