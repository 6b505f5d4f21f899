"""Layers that move a window over height and width; with one axis, over a height of 1."""

from __future__ import annotations

from collections.abc import Callable

import onnx_graphsurgeon as gs

from onnxq.ncnn.network import Network, NotInNcnn, layer_name
from onnxq.operators.sliding_windows import Windows


def integers(node: gs.Node, name: str, default: list[int]) -> list[int]:
    """A list of whole numbers among the attributes."""
    return [int(v) for v in node.attrs.get(name, default)]


def windows(node: gs.Node, size: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """The windows of a node with explicit pads, in two dimensions."""
    if len(size) != len(kernel) or len(kernel) not in (1, 2):
        raise NotInNcnn(f"its window has {len(kernel)} axes; it is written for 1 or 2")
    found = Windows.of(node.attrs, size, kernel)
    if any(b < 0 for b in found.begins) or any(p < 0 for p in found.padding):
        raise NotInNcnn("its padding is negative", "slice the input before this node instead")
    if len(kernel) == 2:
        return found
    return Windows(
        *((1, *found.size), (1, *found.kernel), (1, *found.strides), (1, *found.dilations)),
        *((0, *found.begins), (0, *found.ends), (1, *found.output), (0, *found.padding)),
    )


def plane(net: Network, node: gs.Node, blob: str, shape: tuple[int, ...]) -> str:
    """The blob with a height of 1 where a layer has one spatial axis."""
    if len(shape) == 3:
        return blob
    if len(shape) != 2:
        raise NotInNcnn(f"its input has {len(shape)} axes after the batch, not 2 or 3")
    flat = net.temporary(f"{blob}.plane")
    net.reshape(f"{layer_name(node)}.plane", blob, (shape[0], 1, shape[1]), flat)
    return flat


def result(net: Network, node: gs.Node) -> tuple[str, Callable[[], None]]:
    """The blob a layer of planes writes, and what brings it to the shape of the graph."""
    shape = net.shape(node.outputs[0])
    top = net.made(node.outputs[0])
    if len(shape) == 3:
        return top, lambda: None
    inner = net.temporary(f"{top}.plane")
    return inner, lambda: net.reshape(f"{layer_name(node)}.line", inner, shape, top)
