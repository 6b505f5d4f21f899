"""Operators that move, join, cut and pad, and compute nothing."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.edit import inputs_of
from onnxq.graph.constants import array
from onnxq.ncnn.axis_orders import number_of
from onnxq.ncnn.network import Network, NotInNcnn, dims, layer_name
from onnxq.ncnn.planes import integers
from onnxq.ncnn.program import Value

FOLLOW_THE_BATCH = frozenset(
    {"Transpose", "Gather", "Slice", "Split", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
)
"""Operators that may read a tensor whose batch is not the first axis."""
RESHAPES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
"""Operators that give the same values in another shape."""
PADDINGS = {"constant": 0, "edge": 1, "reflect": 2}
"""Padding's numbers."""


def along(net: Network, node: gs.Node, default: int) -> int:
    """The axis of a node, counted without the batch."""
    axis = int(node.attrs.get("axis", default))
    rank, batch = len(net.shape(node.inputs[0])) + 1, net.batch_of(node.inputs[0])
    axis += rank if axis < 0 else 0
    if axis == batch:
        raise NotInNcnn("it works along the batch", "use another axis than the batch")
    return axis - (axis > batch)


def concat(net: Network, node: gs.Node) -> None:
    """Joined along one axis; a constant among the inputs is stored."""
    known = next((t for t in node.inputs if net.constant(t) is None), None)
    if known is None:
        raise NotInNcnn("all its inputs are constants; 'fold-constants' computes it")
    rank, bottoms = len(net.shape(known)), []
    axis = int(node.attrs.get("axis", 1))
    axis += rank + 1 if axis < 0 else 0
    if axis == 0:
        raise NotInNcnn("it joins batches")
    for tensor in node.inputs:
        values = net.constant(tensor)
        if values is None:
            bottoms.append(net.blob(tensor))
            continue
        if values.shape[0] != 1:
            raise NotInNcnn(f"'{tensor.name}' has a batch of {values.shape[0]}")
        held = net.temporary(tensor.name)
        settings = dims(values.shape[1:])
        net.add("MemoryData", f"{layer_name(node)}.constant", [], [held], settings, [values])
        bottoms.append(held)
    net.add("Concat", layer_name(node), bottoms, [net.made(node.outputs[0])], {0: axis - 1})


def shaped(net: Network, node: gs.Node) -> None:
    """The same values in another shape, which may have no axis for the batch of 1."""
    x, made = node.inputs[0], node.outputs[0]
    if made.shape and isinstance(made.shape[0], int) and made.shape[0] != 1 and net.batch_is_one(x):
        net.merge_batch(made)
    bottom, shape = net.blob(node.inputs[0]), net.shape(node.outputs[0])
    net.reshape(layer_name(node), bottom, shape, net.made(node.outputs[0]))


def transpose(net: Network, node: gs.Node) -> None:
    """Axes in another order; the batch, of size 1, moves without a layer."""
    rank, batch = len(net.shape(node.inputs[0])) + 1, net.batch_of(node.inputs[0])
    perm = integers(node, "perm", list(reversed(range(rank))))
    net.move_batch(node.outputs[0], perm.index(batch))
    number = number_of(tuple(p - (p > batch) for p in perm if p != batch))
    bottom = net.blob(node.inputs[0])
    net.add("Permute", layer_name(node), [bottom], [net.made(node.outputs[0])], {0: number})


def split(net: Network, node: gs.Node) -> None:
    """Consecutive parts along one axis; those that nothing reads are left out."""
    axis, x = along(net, node, 0), node.inputs[0]
    sizes = _sizes(node, net.shape(x)[axis])
    for tensor in node.outputs:
        net.move_batch(tensor, net.batch_of(x))
    used = [t for t in node.outputs if t.outputs or net.model.is_output(t)]
    bottom = net.blob(x)
    if len(used) == len(node.outputs) > 1:
        settings: dict[int, Value] = {0: tuple(sizes), 1: axis}
        net.add("Slice", layer_name(node), [bottom], [net.made(t) for t in used], settings)
        return
    ends = [*itertools.accumulate(sizes)]
    for tensor, size, end in zip(node.outputs, sizes, ends, strict=True):
        if any(tensor is t for t in used):
            name = layer_name(node) if len(used) == 1 else f"{layer_name(node)}.{tensor.name}"
            _crop(net, name, bottom, net.made(tensor), {axis: (end - size, end)})


def _sizes(node: gs.Node, whole: int) -> list[int]:
    """The sizes of the parts of a Split; without any they are equal, the last one the rest."""
    _, given = inputs_of(node, 2)
    stated = node.attrs.get("split") if given is None else array(given)
    if given is not None and stated is None:
        raise NotInNcnn("the sizes of its parts are computed at run time", "use constants")
    if stated is not None:
        return [int(v) for v in np.asarray(stated).reshape(-1)]
    part = -(-whole // len(node.outputs))
    return [min(part, whole - i * part) for i in range(len(node.outputs))]


def _crop(
    net: Network, name: str, bottom: str, top: str, ranges: dict[int, tuple[int, int]]
) -> None:
    """Elements `start` up to `end` of each axis in `ranges`."""
    axes = sorted(ranges)
    settings: dict[int, Value] = {
        9: tuple(ranges[a][0] for a in axes),
        10: tuple(ranges[a][1] for a in axes),
        11: tuple(axes),
    }
    net.add("Crop", name, [bottom], [top], settings)


def slice_(net: Network, node: gs.Node) -> None:
    """A range of each axis; steps over height and width as pools with windows of one element."""
    shape, batch = net.shape(node.inputs[0]), net.batch_of(node.inputs[0])
    net.move_batch(node.outputs[0], batch)
    ranges: dict[int, tuple[int, int]] = {}
    steps = [1] * len(shape)
    for stated, start, end, step in _stated(net, node, len(shape) + 1):
        if stated == batch:
            if len(range(1)[start:end:step]) != 1:
                raise NotInNcnn("it cuts the batch")
            continue
        axis = stated - (stated > batch)
        if step < 0:
            raise NotInNcnn("it goes backwards", "use a positive step")
        found = range(shape[axis])[start:end:step]
        if not found:
            raise NotInNcnn("nothing is left of its input")
        steps[axis] = step if len(found) > 1 else 1
        if (found.start, found[-1] + 1) != (0, shape[axis]):
            ranges[axis] = found.start, found[-1] + 1
    stepped = any(s > 1 for s in steps)
    if stepped and (len(shape) != 3 or steps[0] > 1):
        raise NotInNcnn(
            "its step is not 1 along an axis other than height and width",
            "write it as Reshape and a Slice with step 1",
        )
    top, name = net.made(node.outputs[0]), layer_name(node)
    bottom = net.blob(node.inputs[0])
    if ranges or not stepped:
        cut = net.temporary(f"{top}.cut") if stepped else top
        ranges = ranges or {0: (0, shape[0])}
        _crop(net, f"{name}.cut" if stepped else name, bottom, cut, ranges)
        bottom = cut
    if stepped:
        settings: dict[int, Value] = {0: 0, 1: 1, 11: 1, 2: steps[2], 12: steps[1]}
        settings |= {3: 0, 13: 0, 14: 0, 15: 0, 5: 1, 6: 0}
        net.add("Pooling", name, [bottom], [top], settings)


def _stated(net: Network, node: gs.Node, rank: int) -> list[tuple[int, int, int, int]]:
    """Axis, start, end and step of each cut, from inputs or, before opset 10, attributes."""
    values = []
    for at, name in enumerate(("starts", "ends", "axes", "steps"), 1):
        if name in node.attrs:
            values.append([int(v) for v in node.attrs[name]])
            continue
        tensor = node.inputs[at] if len(node.inputs) > at and node.inputs[at].name else None
        found = None if tensor is None else array(tensor)
        if tensor is not None and found is None:
            raise NotInNcnn(f"its {name} are computed at run time", "use constants")
        values.append([] if found is None else [int(v) for v in found.reshape(-1)])
    starts, ends, axes, steps = values
    axes = [a % rank for a in axes] or list(range(len(starts)))
    return list(zip(axes, starts, ends, steps or [1] * len(starts), strict=True))


def gather(net: Network, node: gs.Node) -> None:
    """One index, or consecutive ones, that are constants."""
    if net.constant(node.inputs[0]) is not None:
        raise NotInNcnn(
            f"it looks rows up in the constant '{node.inputs[0].name}' (an embedding), which is "
            "not written for ncnn",
            "look them up in the application, and let the model begin behind this part",
        )
    axis, shape = along(net, node, 0), net.shape(node.inputs[0])
    stated = array(node.inputs[1])
    if stated is None:
        raise NotInNcnn(
            "its indices are computed at run time",
            "cut the model before this part and compute it in the application",
        )
    size = shape[axis]
    indices = [int(i) + (size if i < 0 else 0) for i in np.asarray(stated).reshape(-1)]
    whole = list(range(indices[0], indices[0] + len(indices))) if indices else []
    if not indices or indices != whole or not 0 <= whole[0] <= whole[-1] < size:
        raise NotInNcnn("its indices are not consecutive", "write it as Slice and Concat")
    batch = net.batch_of(node.inputs[0])
    net.move_batch(node.outputs[0], batch - (axis < batch) * (np.ndim(stated) == 0))
    top, name, wanted = net.made(node.outputs[0]), layer_name(node), net.shape(node.outputs[0])
    kept = tuple(len(indices) if i == axis else d for i, d in enumerate(shape))
    cut = top if wanted == kept else net.temporary(f"{top}.cut")
    _crop(net, name, net.blob(node.inputs[0]), cut, {axis: (whole[0], whole[-1] + 1)})
    if cut != top:
        net.reshape(f"{name}.shape", cut, wanted, top)


def pad(net: Network, node: gs.Node) -> None:
    """Constants, edges or reflections around height and width; constants around channels too."""
    shape = net.shape(node.inputs[0])
    mode = str(node.attrs.get("mode", "constant"))
    _, given, value, axes = inputs_of(node, 4)
    stated = node.attrs.get("pads") if given is None else array(given)
    if stated is None or (value is not None and array(value) is None):
        raise NotInNcnn("its pads or their value are computed at run time", "use constants")
    if mode not in PADDINGS or len(shape) > 3:
        raise NotInNcnn(f"it pads {len(shape)} axes by '{mode}'", "use constant, edge or reflect")
    rank, pads = len(shape) + 1, [int(v) for v in np.asarray(stated).reshape(-1)]
    which = range(rank) if axes is None else [int(a) % rank for a in np.asarray(array(axes))]
    both = dict.fromkeys(range(rank), (0, 0))
    both |= dict(
        zip(which, zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True), strict=True)
    )
    widths = [both[a] for a in range(rank)]
    if any(v < 0 for pair in widths for v in pair) or widths[0] != (0, 0):
        raise NotInNcnn("it cuts, or pads the batch", "use a Slice to cut")
    front, rows, columns = [(0, 0)] * (3 - len(shape)) + widths[1:]
    if front != (0, 0) and mode != "constant":
        raise NotInNcnn(f"it pads channels by '{mode}'", "pad height and width only")
    fill = 0.0 if value is None else float(np.asarray(array(value)).reshape(()))
    settings: dict[int, Value] = {0: rows[0], 1: rows[1], 2: columns[0], 3: columns[1]}
    settings |= {4: PADDINGS[mode], 5: float(node.attrs.get("value", fill))}
    if front != (0, 0):
        settings |= {7: front[0], 8: front[1]}
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("Padding", layer_name(node), [bottom], [top], settings)


def depth_to_space(net: Network, node: gs.Node) -> None:
    """Channels to squares of positions, blocks by columns first (CRD) or by depth (DCR)."""
    settings: dict[int, Value] = {
        0: int(node.attrs["blocksize"]),
        1: int(node.attrs.get("mode", "DCR") == "DCR"),
    }
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("PixelShuffle", layer_name(node), [bottom], [top], settings)
