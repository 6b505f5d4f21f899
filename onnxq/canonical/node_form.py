"""Checks the form of nodes that passes rely on: inputs, outputs and attributes.

Operators of ONNX are held to onnx's own schemas, those of the domain `onnxq` to their functions.
Each node is checked once, when a model is read. Some files state a wrong opset (see the pass
`correct-opset`), so a node has to match any version of its operator: the widest number of inputs,
and every attribute in a type that it has in some version. Private operators, and attributes that
no version knows, are left to the readers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_graphsurgeon as gs
from onnx import AttributeProto, FunctionProto, defs

from onnxq.canonical.fake_quantize import DOMAIN
from onnxq.errors import InvalidModelError
from onnxq.operators.integer_operators import CHANNELS_LAST_DOMAINS, MICROSOFT
from onnxq.storage.exporter import describe
from onnxq.storage.importer import as_text

_FIX = "the file is not a valid ONNX model: export it again"
_STORED_ELSEWHERE = ("QuantizeLinear", "DequantizeLinear")
"""Some tools omit a scale and store it elsewhere, so readers check these inputs."""
_KINDS: Mapping[type, int] = {
    int: AttributeProto.INT,
    float: AttributeProto.FLOAT,
    str: AttributeProto.STRING,
    bytes: AttributeProto.STRING,
    gs.Constant: AttributeProto.TENSOR,
    gs.Graph: AttributeProto.GRAPH,
}
_LISTS: Mapping[int, int] = {
    AttributeProto.INT: AttributeProto.INTS,
    AttributeProto.FLOAT: AttributeProto.FLOATS,
    AttributeProto.STRING: AttributeProto.STRINGS,
    AttributeProto.GRAPH: AttributeProto.GRAPHS,
}


@dataclass(frozen=True)
class NodeForm:
    """The inputs, outputs and attributes of an operator."""

    inputs: tuple[int, int]
    """The lowest and the highest number of them; outputs likewise."""
    outputs: tuple[int, int]
    needed: tuple[int, ...]
    """Positions of inputs that must not be blank if present."""
    repeated: bool
    """Whether the first input, which is needed, may come any number of times."""
    attributes: Mapping[str, frozenset[int]]
    """The types that each attribute may have."""
    required: frozenset[str]
    """Attributes without a default."""


IsPrivate = Callable[[str, str], bool]
"""Whether the readers know the operator of a domain and a type."""


def check_nodes(
    nodes: Iterable[gs.Node], own: Mapping[str, NodeForm], is_private: IsPrivate
) -> None:
    """Raise InvalidModelError on a node just read that does not have the form of its operator.

    `own` are the forms of the operators of the domain `onnxq`.
    """
    for node in nodes:
        domain = node.domain
        form = own.get(node.op) if domain == DOMAIN else _known_form(domain, node.op, is_private)
        if form is not None:
            _check(node, form)
        if type(node.name) is not str:
            as_text(node.name)
        if node.attrs and len(node.attrs) != len(node.source.attribute):
            raise _wrong(node, "has two attributes with the same name")


def _check(node: gs.Node, form: NodeForm) -> None:
    inputs, given = node.inputs, len(node.inputs)
    least, most = form.inputs
    if not least <= given <= most:
        raise _wrong(node, f"has {given or 'no'} inputs, expected {_between(least, most)}")
    for index in range(given) if form.repeated else form.needed:
        if index < given and not inputs[index].name:
            raise _wrong(node, f"lacks the required input {index + 1}")
    given = len(node.outputs)
    least, most = form.outputs
    if not least <= given <= most:
        raise _wrong(node, f"has {given or 'no'} outputs, expected {_between(least, most)}")
    if form.required and not form.required <= node.attrs.keys():
        missing = sorted(form.required - node.attrs.keys())
        raise _wrong(node, f"lacks the attribute '{missing[0]}'")
    for name, value in node.attrs.items():
        types = form.attributes.get(name)
        if types is None:
            as_text(name)
        elif not _is_one_of(value, types):
            wanted = " or ".join(sorted(map(AttributeProto.AttributeType.Name, types)))
            raise _wrong(node, f"has an attribute '{name}' that is not of type {wanted}")


def _wrong(node: gs.Node, why: str) -> InvalidModelError:
    return InvalidModelError(f"node {describe(node)} {why}", fix=_FIX)


def _between(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most >= _ANY else f"{least} to {most}"


def _is_one_of(value: Any, types: frozenset[int]) -> bool:
    if isinstance(value, AttributeProto):  # the importer has no Python value for it
        return not value.ref_attr_name and value.type in types
    if type(value) is not list:
        return _KINDS.get(type(value)) in types
    if not value:
        return not types.isdisjoint(_LISTS.values())
    return _LISTS.get(_KINDS.get(type(value[0]), 0)) in types


# -- where forms come from --------------------------------------------------------------------

_ANY = 2**31 - 1
_BLANK = defs.OpSchema.FormalParameterOption.Optional


@functools.cache
def standard_form(op: str) -> NodeForm | None:
    """The form that all versions of an ONNX operator allow; None if there is no such operator."""
    versions = list(_versions(op))
    if not versions:
        return None
    types: dict[str, set[int]] = {}
    for schema in versions:
        for name, attribute in schema.attributes.items():
            types.setdefault(name, set()).add(int(attribute.type.value))
    counts = [len(schema.inputs) for schema in versions]
    checked = 1 if op in _STORED_ELSEWHERE else _ANY
    return NodeForm(
        (min(checked, *(s.min_input for s in versions)), max(s.max_input for s in versions)),
        (min(s.min_output for s in versions), max(s.max_output for s in versions)),
        tuple(
            index
            for index in range(min(checked, *counts))
            if all(schema.inputs[index].option != _BLANK for schema in versions)
        ),
        all(s.max_input == _ANY and len(s.inputs) == 1 for s in versions),
        {name: frozenset(kinds) for name, kinds in types.items()},
        frozenset.intersection(
            *(frozenset(n for n, a in s.attributes.items() if a.required) for s in versions)
        ),
    )


@functools.cache
def _known_form(domain: str | None, op: str, is_private: IsPrivate) -> NodeForm | None:
    """The form of an operator of ONNX, of onnxruntime or of a dialect; None for others."""
    op, domain = as_text(op), None if domain is None else as_text(domain)
    form = standard_form(op) if domain in (None, "ai.onnx") else None
    known = domain in (MICROSOFT, *CHANNELS_LAST_DOMAINS) or is_private(domain or "", op)
    return _PRIVATE if form is None and known else form


_PRIVATE = NodeForm(
    (0, _ANY),
    (1, _ANY),
    (),
    False,
    {
        **dict.fromkeys(
            (
                *("axis", "bits", "block_size", "channels_last", "gather_axis", "group", "K", "N"),
                *("levels", "narrow", "opset", "quantize_axis", "signed", "transA", "transB"),
                *("accuracy_level", "weight_prepacked", "ceil_mode", "count_include_pad"),
                *("keepdims", "output_dtype", "saturate", "precision"),
            ),
            frozenset({int(AttributeProto.INT)}),
        ),
        **dict.fromkeys(
            ("axes", "dilations", "kernel_shape", "pads", "strides"),
            frozenset({int(AttributeProto.INTS)}),
        ),
        "auto_pad": frozenset({int(AttributeProto.STRING)}),
        "rounding_mode": frozenset({int(AttributeProto.STRING), int(AttributeProto.INT)}),
        "alpha": frozenset({int(AttributeProto.FLOAT)}),
    },
    frozenset(),
)
"""Attributes of operators of onnxruntime and of dialects: one name means the same in all, except
for the rounding mode, which is a word in QONNX and a number in Quark."""


def _versions(op: str) -> Iterable[Any]:
    newest = _ANY
    while newest > 0 and defs.has(op, newest, ""):
        schema = defs.get_schema(op, newest, "")
        yield schema
        newest = schema.since_version - 1


def call_form(function: FunctionProto) -> NodeForm:
    """The form of calls to a function whose inputs are all required."""
    types = {
        a.ref_attr_name: frozenset({int(a.type)})
        for node in function.node
        for a in node.attribute
        if a.ref_attr_name
    }
    inputs, outputs = len(function.input), len(function.output)
    return NodeForm(
        (inputs, inputs),
        (outputs, outputs),
        tuple(range(inputs)),
        False,
        types,
        frozenset(function.attribute),
    )
