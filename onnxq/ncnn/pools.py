"""Pools over windows and over all positions, and sizes of planes changed."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.graph.constants import array
from onnxq.ncnn.network import Network, NotInNcnn, layer_name
from onnxq.ncnn.planes import integers, plane, result, windows
from onnxq.ncnn.program import Value

NEAREST, LINEAR, CUBIC = 1, 2, 3
"""Interp's numbers for ways to interpolate."""


def pool(net: Network, node: gs.Node) -> None:
    """MaxPool and AveragePool; where ceil_mode adds a window, the padding after grows.

    A maximum never takes what is padded, and an average does not count it. One that counts the
    padding it states, but not what ceil_mode adds, has no form in ncnn.
    """
    kernel = tuple(integers(node, "kernel_shape", []))
    shape = net.shape(node.inputs[0])
    if len(kernel) + 1 != len(shape) or len([t for t in node.outputs if t.name]) > 1:
        raise NotInNcnn("only pools over 1 or 2 axes, without the places of maxima, are written")
    places = windows(node, shape[1:], kernel)
    if places.dilations != (1, 1):
        raise NotInNcnn("it is dilated", "use a pool without dilations")
    counts = int(node.op == "AveragePool" and node.attrs.get("count_include_pad", 0))
    if counts and places.ends != places.padding:
        raise NotInNcnn(
            "its average counts the padding, and ceil_mode adds a window beyond it",
            "pad the input with a Pad node, and leave count_include_pad out",
        )
    (top_pad, left), (bottom_pad, right) = places.begins, places.ends
    settings: dict[int, Value] = {0: int(node.op == "AveragePool")}
    settings |= {1: places.kernel[1], 11: places.kernel[0]}
    settings |= {2: places.strides[1], 12: places.strides[0]}
    settings |= {3: left, 13: top_pad, 14: right, 15: bottom_pad, 5: 1, 6: counts}
    bottom = plane(net, node, net.blob(node.inputs[0]), shape)
    top, finish = result(net, node)
    net.add("Pooling", layer_name(node), [bottom], [top], settings)
    finish()


def global_pool(net: Network, node: gs.Node) -> None:
    """A pool over all positions."""
    shape = net.shape(node.inputs[0])
    bottom = plane(net, node, net.blob(node.inputs[0]), shape)
    flat = net.temporary(f"{node.outputs[0].name}.flat")
    average = int(node.op == "GlobalAveragePool")
    net.add("Pooling", layer_name(node), [bottom], [flat], {0: average, 4: 1})
    top = net.made(node.outputs[0])
    net.reshape(f"{layer_name(node)}.shape", flat, net.shape(node.outputs[0]), top)


def resize(net: Network, node: gs.Node) -> None:
    """Nearest neighbours from the corner on; linear interpolation of centres or of corners."""
    before, after = net.shape(node.inputs[0]), net.shape(node.outputs[0])
    mode = str(node.attrs.get("mode", "nearest"))
    rule = str(node.attrs.get("coordinate_transformation_mode", "half_pixel"))
    if len(before) != 3 or before[0] != after[0]:
        raise NotInNcnn("it resizes other axes than height and width")
    if node.attrs.get("antialias", 0) or node.attrs.get("exclude_outside", 0):
        raise NotInNcnn("it filters (antialias or exclude_outside)", "resize without the filter")
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotInNcnn("it keeps an aspect ratio", "state the sizes of the output")
    _check_factors(node, before, after)
    corners = 0
    if mode == "nearest":
        # With whole factors, floor(i / factor) is what every rule but aligned corners comes to.
        whole = all(b % a == 0 for a, b in zip(before, after, strict=True))
        rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
        halves = rule in ("half_pixel", "pytorch_half_pixel") and whole
        halves = halves and rounding in ("round_prefer_floor", "round_prefer_ceil")
        if not (halves or (rule == "asymmetric" and rounding == "floor")):
            raise NotInNcnn(
                f"nearest neighbours by {rule} and {rounding}",
                "resize by integer factors, or with asymmetric coordinates and floor",
            )
        kind = NEAREST
    elif mode == "linear" and rule in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        if rule == "pytorch_half_pixel" and 1 in after[1:]:
            raise NotInNcnn("pytorch_half_pixel takes position 0 for an axis of size 1")
        kind, corners = LINEAR, int(rule == "align_corners")
    else:
        raise NotInNcnn(
            f"it interpolates by {mode} and {rule}",
            "resize by nearest neighbours, or linear with half_pixel or align_corners",
        )
    settings: dict[int, Value] = {0: kind, 1: after[1] / before[1], 2: after[2] / before[2]}
    settings |= {3: after[1], 4: after[2]} | ({6: 1} if corners else {})
    bottom, top = net.blob(node.inputs[0]), net.made(node.outputs[0])
    net.add("Interp", layer_name(node), [bottom], [top], settings)


def _check_factors(node: gs.Node, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Refuse stated factors that are cut to a size: ncnn's factors are the ratio of sizes."""
    stated = array(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2].name else None
    if stated is None or not stated.size:
        return
    axes = [int(a) % (len(before) + 1) for a in node.attrs.get("axes", range(len(before) + 1))]
    for axis, factor in zip(axes, stated, strict=True):
        a, b = (before[axis - 1], after[axis - 1]) if axis else (1, 1)
        if abs(float(factor) * a - b) > 1e-3:
            raise NotInNcnn(
                f"factor {factor} makes no whole number of {a} positions",
                "state the sizes of the output instead of factors",
            )
