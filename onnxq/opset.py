"""Raise a model's opset without changing what it computes or what it carries.

onnx's version converter rebuilds the model and loses metadata, functions and subgraph details,
so the rewriting is done here, node by node, driven by onnx's own operator schemas:

* an operator whose schema did not change between both versions is left alone;
* an attribute that became an input is moved (`MOVED`);
* an operator whose meaning changed is rewritten by a rule (`RULES`);
* otherwise the node must be valid under the new schema as it stands, where a default that
  changed is written out with its old value.

Anything else is refused by name: the opset is raised completely or not at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import AttributeProto, defs, helper

from onnxq.edit import constant, variable
from onnxq.errors import UnsupportedModelError
from onnxq.exporter import describe
from onnxq.graph import MAX_IR, MAX_OPSET, Model, domain_of

MOVED: dict[tuple[str, int], dict[str, int]] = {
    ("Slice", 10): {"starts": 1, "ends": 2, "axes": 3},
    ("TopK", 10): {"k": 1},
    ("Clip", 11): {"min": 1, "max": 2},
    ("Pad", 11): {"pads": 1, "value": 2},
    ("Dropout", 12): {"ratio": 1},
    ("Squeeze", 13): {"axes": 1},
    ("Unsqueeze", 13): {"axes": 1},
    ("Split", 13): {"split": 1},
    ("ReduceSum", 13): {"axes": 1},
    **{
        (f"Reduce{kind}", 18): {"axes": 1}
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
    },
}
"""Per (operator, first version): the attributes that became inputs, with the input's number."""


def raise_opset(model: Model, version: int, why: str) -> None:
    """Raise the default domain of `model` to `version`."""
    old = model.opset
    if version > MAX_OPSET:
        raise UnsupportedModelError(
            f"opset {version} is needed ({why}), but onnxruntime reads up to {MAX_OPSET}",
            fix="choose another quantization type",
        )
    _check_functions(model, old, version)
    # A rule may change the version of what it makes (Upsample -> Resize), hence one step a time.
    for step in range(old + 1, version + 1):
        for node in model.nodes():
            if domain_of(node) == "":
                _upgrade(node, step, model)
    for key in ("", "ai.onnx"):
        if key in model.opsets:
            model.opsets[key] = version
    model.upgrades.append(f"opset {old} -> {version}: {why}")
    ir_version = min(helper.find_min_ir_version_for([helper.make_opsetid("", version)]), MAX_IR)
    model.require_ir(ir_version, f"opset {version}")


@functools.cache
def _schema(op: str, version: int) -> Any:
    try:
        return defs.get_schema(op, version, "")
    except defs.SchemaError:
        return None


def _upgrade(node: gs.Node, step: int, model: Model) -> None:
    """Carry one node from opset `step - 1` to `step`."""
    old, new = _schema(node.op, step - 1), _schema(node.op, step)
    if old is None or new is None or old.since_version == new.since_version:
        # Unknown operators (private ones in the default domain) have no versions to heed.
        return
    key = (node.op, new.since_version)
    rule = RULES.get(key)
    if rule is not None:
        rule(node, model)
        return
    for name, index in MOVED.get(key, {}).items():
        # Absent optional attributes become absent inputs: the defaults are the same.
        if name in node.attrs:
            _move_to_input(node, name, index, model)
    if new.deprecated:
        raise _refusal(node, step, "the operator was removed from ONNX")
    for name in node.attrs:
        if name not in new.attributes:
            raise _refusal(node, step, f"attribute '{name}' is gone")
    for name, attribute in old.attributes.items():
        if name in node.attrs or name not in new.attributes:
            continue
        before = attribute.default_value
        after = new.attributes[name].default_value
        if before.type != AttributeProto.UNDEFINED and before != after:
            node.attrs[name] = helper.get_attribute_value(before)
    if len(node.inputs) > new.max_input:
        raise _refusal(node, step, f"it takes at most {new.max_input} inputs now")


def _refusal(node: gs.Node, version: int, why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"node {describe(node)} cannot be raised to opset {version}: {why}",
        fix="export the model with a newer opset (17 or later is best), then convert",
    )


def _move_to_input(node: gs.Node, name: str, index: int, model: Model) -> None:
    value = node.attrs.pop(name)
    dtype: Any = np.int64
    if isinstance(value, float):
        # min, max and the pad value have the type of the tensor they are compared with.
        dtype = node.inputs[0].dtype or np.float32
    while len(node.inputs) <= index:
        node.inputs.append(gs.Variable(""))
    data = np.array([value] if (node.op, name) == ("TopK", "k") else value, dtype=dtype)
    node.inputs[index] = constant(model, f"{node.name or node.outputs[0].name}.{name}", data)


# -- operators whose meaning changed ----------------------------------------------------------


def _softmax(node: gs.Node, model: Model) -> None:
    """Before 13 the input is coerced to 2-D at `axis`; from 13 the axis alone is normalised.

    Both agree when every dimension behind the axis is one the operator spans, which is so for the
    last axis. Otherwise: Flatten(axis) -> op(-1) -> Reshape(Shape(x)).
    """
    axis = node.attrs.get("axis", 1)
    shape = node.inputs[0].shape
    if axis == -1 or (shape is not None and axis in (len(shape) - 1, -1)):
        node.attrs["axis"] = axis
        return
    x, y = node.inputs[0], node.outputs[0]
    name = node.name or y.name
    flat = _new_node(model, node, "Flatten", [x], {"axis": axis}, f"{name}.flat")
    size = _new_node(model, node, "Shape", [x], {}, f"{name}.shape")
    node.attrs["axis"] = -1
    node.inputs[0] = flat
    inner = variable(model, f"{name}.2d", like=None)
    node.outputs[0] = inner
    back = gs.Node("Reshape", model.fresh_name(f"{name}.back"), {}, [inner, size], [y])
    back.owner = node.owner
    node.owner.nodes.append(back)


def _new_node(
    model: Model, near: gs.Node, op: str, inputs: list[gs.Tensor], attrs: dict[str, Any], name: str
) -> gs.Tensor:
    out = variable(model, name, like=None)
    made = gs.Node(op, model.fresh_name(f"{name}.node"), attrs, inputs, [out])
    made.owner = near.owner
    near.owner.nodes.append(made)
    return out


def _upsample_9_to_resize_10(node: gs.Node, model: Model) -> None:
    """Upsample was renamed; both scale asymmetrically."""
    node.op = "Resize"


def _upsample_7_to_9(node: gs.Node, model: Model) -> None:
    scales = np.array(node.attrs.pop("scales"), np.float32)
    node.inputs.append(constant(model, f"{node.name or node.outputs[0].name}.scales", scales))


def _resize_10_to_11(node: gs.Node, model: Model) -> None:
    """Resize-10 is asymmetric; nearest floors when enlarging and ceils when shrinking.

    Version 10 computed source = floor(i / scale) for scales >= 1, which is what Resize-11 calls
    asymmetric + floor.
    """
    scales = node.inputs[1]
    node.inputs[1] = gs.Variable("")
    node.inputs.append(scales)
    node.attrs["coordinate_transformation_mode"] = "asymmetric"
    node.attrs["nearest_mode"] = "floor"


def _scatter_to_elements(node: gs.Node, model: Model) -> None:
    """Scatter was renamed when its axis semantics were fixed."""
    node.op = "ScatterElements"


def _batch_norm_9(node: gs.Node, model: Model) -> None:
    """Version 9 dropped `spatial`, which only its default value made meaningful."""
    if node.attrs.pop("spatial", 1) != 1:
        raise _refusal(node, 9, "spatial=0 is gone")


def _batch_norm_14(node: gs.Node, model: Model) -> None:
    """Version 14 asks for training_mode; extra outputs were the training form before."""
    if len([t for t in node.outputs if t.name]) > 1:
        raise _refusal(node, 14, "it is in training form")
    del node.outputs[1:]


def _split_18(node: gs.Node, model: Model) -> None:
    """Version 18 wants either sizes or a number of outputs."""
    if len(node.inputs) < 2 or not node.inputs[1].name:
        node.attrs["num_outputs"] = len(node.outputs)


def _grid_sample_20(node: gs.Node, model: Model) -> None:
    """Version 20 renamed the modes."""
    mode = node.attrs.get("mode", "bilinear")
    node.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


RULES: dict[tuple[str, int], Callable[[gs.Node, Model], None]] = {
    ("Softmax", 13): _softmax,
    ("LogSoftmax", 13): _softmax,
    ("Hardmax", 13): _softmax,
    ("Upsample", 9): _upsample_7_to_9,
    ("Upsample", 10): _upsample_9_to_resize_10,
    ("Resize", 11): _resize_10_to_11,
    ("Scatter", 11): _scatter_to_elements,
    ("BatchNormalization", 9): _batch_norm_9,
    ("BatchNormalization", 14): _batch_norm_14,
    ("Split", 18): _split_18,
    ("GridSample", 20): _grid_sample_20,
}
"""Per (operator, first version): how a node of the version before is rewritten."""


def _check_functions(model: Model, old: int, version: int) -> None:
    """A function body is opaque: it may only be restamped where none of its operators changed."""
    for index, function in enumerate(model.functions):
        imports = {e.domain: e for e in function.opset_import}
        entry = imports.get("") or imports.get("ai.onnx")
        if entry is None or entry.version >= version:
            continue
        for node in function.node:
            if node.domain in ("", "ai.onnx"):
                before, after = _schema(node.op_type, entry.version), _schema(node.op_type, version)
                if before is not None and before.since_version != after.since_version:
                    raise UnsupportedModelError(
                        f"function '{function.domain}::{function.name}' uses {node.op_type}, which "
                        f"changed between opset {old} and {version}",
                        fix="inline the model's functions (onnx.inliner), then convert",
                    )
        twin = type(function)()
        twin.CopyFrom(function)
        for e in twin.opset_import:
            if e.domain in ("", "ai.onnx"):
                e.version = version
        model.functions[index] = twin
