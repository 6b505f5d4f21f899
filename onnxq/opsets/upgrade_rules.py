"""Rules that carry operators whose form or meaning changed to the next version of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import constant, new_node, set_input, set_output, variable
from onnxq.errors import UnsupportedModelError
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.opsets.float_types import FloatTypes
from onnxq.quant.qparams import Array
from onnxq.storage.exporter import describe, is_read

MOVED: dict[tuple[str, int], dict[str, int]] = {
    ("Upsample", 9): {"scales": 1},
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


def refusal(node: gs.Node, version: int, why: str) -> UnsupportedModelError:
    """The error for a node that cannot be rewritten for `version`."""
    return UnsupportedModelError(
        f"node {describe(node)} cannot be raised to opset {version}: {why}",
        fix="export the model with a newer opset (17 or later is best), then convert",
    )


def move_to_input(node: gs.Node, name: str, index: int, model: Model) -> None:
    """Make the attribute `name` of `node` its input `index`."""
    value = node.attrs.pop(name)
    dtype: Any = np.int64
    if node.op in ("Dropout", "Upsample"):
        dtype = np.float32
    elif isinstance(value, float):
        # min, max and the pad value have the type of the tensor they are compared with.
        dtype = FloatTypes().of(node.inputs[0])
    with np.errstate(over="ignore"):  # 3.4e38 means "no bound", which is inf in half precision
        data = np.array([value] if (node.op, name) == ("TopK", "k") else value, dtype=dtype)
    set_input(node, index, _own_constant(node, name, data, model))


def _own_constant(node: gs.Node, what: str, value: Array, model: Model) -> gs.Constant:
    return constant(model, f"{node.name or node.outputs[0].name}.{what}", value)


# -- one rule per change ----------------------------------------------------------------------


def _broadcast_7(node: gs.Node, model: Model) -> None:
    """Before 7 broadcasting was optional; without `axis` it aligned at the end, as it does now."""
    if "axis" in node.attrs:
        raise refusal(node, 7, "it broadcasts along an axis")
    node.attrs.pop("broadcast", None)


def _inference_7(node: gs.Node, model: Model) -> None:
    """Before 7 `is_test` distinguished inference from training, which was the default."""
    if not node.attrs.pop("is_test", 0):
        raise refusal(node, 7, "it is in training form")


def _prelu_7(node: gs.Node, model: Model) -> None:
    """Before 7 a slope vector ran along axis 1; from 7 on it broadcasts from the end."""
    slope = array(node.inputs[1])
    if slope is None or slope.size != 1:
        raise refusal(node, 7, "its slope is one number per channel")


def _batch_norm_9(node: gs.Node, model: Model) -> None:
    """Version 9 dropped `spatial`; only its default value is still possible."""
    if node.attrs.pop("spatial", 1) != 1:
        raise refusal(node, 9, "spatial=0 is gone")


def _batch_norm_14(node: gs.Node, model: Model) -> None:
    """Before 14 extra outputs meant training; since then `training_mode` does."""
    if any(t.name for t in node.outputs[1:]):
        raise refusal(node, 14, "it is in training form")
    while len(node.outputs) > 1:
        node.outputs.pop()


def _dropout_10(node: gs.Node, model: Model) -> None:
    """The mask became bool."""
    if len(node.outputs) > 1 and (model.is_output(node.outputs[1]) or is_read(node.outputs[1])):
        raise refusal(node, 10, "its mask is used, and the type of the mask changed")


def _scan_9(node: gs.Node, model: Model) -> None:
    """Version 8 scans a batch of sequences with lengths, version 9 one sequence."""
    raise refusal(node, 9, "its batch dimension is gone")


def _upsample_10(node: gs.Node, model: Model) -> None:
    """Upsample was renamed; both scale asymmetrically, Upsample by factors of one or more."""
    node.op = "Resize"
    node.enlarges = True


def _resize_11(node: gs.Node, model: Model) -> None:
    """Version 10 maps output i to input i / scale.

    The nearest input is the floor of that when enlarging and the ceiling when shrinking; version 11
    has one rounding for all axes.
    """
    scales = node.inputs[1]
    node.attrs["coordinate_transformation_mode"] = "asymmetric"
    if node.attrs.get("mode", "nearest") == "nearest":
        factors = array(scales)
        if getattr(node, "enlarges", False) or (factors is not None and (factors >= 1).all()):
            node.attrs["nearest_mode"] = "floor"
        elif factors is not None and (factors <= 1).all():
            node.attrs["nearest_mode"] = "ceil"
        elif factors is None:
            raise refusal(node, 11, "it may enlarge or shrink: its scales are not constant")
        else:
            raise refusal(node, 11, "it enlarges one axis and shrinks another")
    set_input(node, 1, _own_constant(node, "roi", np.empty(0, np.float32), model))
    set_input(node, 2, scales)


def _resize_13(node: gs.Node, model: Model) -> None:
    if node.attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        raise refusal(node, 13, "coordinate mode tf_half_pixel_for_nn is gone")


def _scatter_11(node: gs.Node, model: Model) -> None:
    """Scatter was renamed."""
    node.op = "ScatterElements"


def _softmax_13(node: gs.Node, model: Model) -> None:
    """Before 13 the input is a matrix, split at `axis`; from 13 on one axis is normalised.

    Both agree for the last axis. Otherwise: Flatten(axis), the operator on axis -1, and
    Reshape(Shape(x)).
    """
    axis = node.attrs.get("axis", 1)
    x, y = node.inputs[0], node.outputs[0]
    if axis == -1 or (x.shape is not None and axis == len(x.shape) - 1):
        node.attrs["axis"] = axis
        return
    name = node.name or y.name

    def made(op: str, source: gs.Tensor, attrs: dict[str, Any]) -> gs.Tensor:
        result = variable(model, f"{name}.{op}", like=None)
        new_node(model, op, [source], [result], name=result.name, attrs=attrs, graph=node.owner)
        return result

    size = made("Shape", x, {})
    set_input(node, 0, made("Flatten", x, {"axis": axis}))
    node.attrs["axis"] = -1
    flat = variable(model, f"{name}.matrix", like=None)
    set_output(node, 0, flat)
    new_node(model, "Reshape", [flat, size], [y], name=f"{name}.Reshape", graph=node.owner)


def _roi_align_16(node: gs.Node, model: Model) -> None:
    """Version 16 shifts by half a pixel by default."""
    node.attrs["coordinate_transformation_mode"] = "output_half_pixel"


def _split_18(node: gs.Node, model: Model) -> None:
    """Version 18 requires either sizes or a number of outputs."""
    if len(node.inputs) < 2 or not node.inputs[1].name:
        node.attrs["num_outputs"] = len(node.outputs)


def _dft_20(node: gs.Node, model: Model) -> None:
    """The axis became an input, and its default changed from 1 to the last but one."""
    axis = np.array(node.attrs.pop("axis", 1), np.int64)
    set_input(node, 2, _own_constant(node, "axis", axis, model))


def _grid_sample_20(node: gs.Node, model: Model) -> None:
    """Version 20 renamed the modes."""
    mode = node.attrs.get("mode", "bilinear")
    node.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


def _group_norm_21(node: gs.Node, model: Model) -> None:
    """Scale and bias were one number per group and became one per channel."""
    shape = node.inputs[0].shape
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    for index, what in ((1, "scale"), (2, "bias")):
        value = array(node.inputs[index])
        if value is None or not isinstance(channels, int):
            raise refusal(node, 21, "scale and bias must be constant and the channels known")
        spread = np.repeat(value, channels // int(node.attrs["num_groups"]))
        set_input(node, index, _own_constant(node, what, spread, model))


RULES: dict[tuple[str, int], Callable[[gs.Node, Model], None]] = {
    **{(op, 7): _broadcast_7 for op in ("Add", "Div", "Gemm", "Mul", "Pow", "Sub")},
    **{(op, 7): _broadcast_7 for op in ("And", "Equal", "Greater", "Less", "Or", "Xor")},
    ("BatchNormalization", 7): _inference_7,
    ("BatchNormalization", 9): _batch_norm_9,
    ("BatchNormalization", 14): _batch_norm_14,
    ("DFT", 20): _dft_20,
    ("Dropout", 7): _inference_7,
    ("Dropout", 10): _dropout_10,
    ("GridSample", 20): _grid_sample_20,
    ("GroupNormalization", 21): _group_norm_21,
    ("Hardmax", 13): _softmax_13,
    ("LogSoftmax", 13): _softmax_13,
    ("PRelu", 7): _prelu_7,
    ("Resize", 11): _resize_11,
    ("Resize", 13): _resize_13,
    ("RoiAlign", 16): _roi_align_16,
    ("Scan", 9): _scan_9,
    ("Scatter", 11): _scatter_11,
    ("Softmax", 13): _softmax_13,
    ("Split", 18): _split_18,
    ("Upsample", 10): _upsample_10,
}
"""Per (operator, first version): the function that rewrites a node of the version before."""
