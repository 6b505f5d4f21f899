"""An ncnn network being put together from a canonical graph.

ncnn has no batch axis: a tensor [1, c, h, w] is the blob (c, h, w). A layer with int8 weights
rounds its own input, as one FakeQuantize before it says: codes -127..127, zero point 0. If anything
else reads a quantized tensor, three layers round it:

    Quantize  q = clamp(round(x * (1 / step)), -127, 127)      int8
    Cast      int8 -> float32
    BinaryOp  q * step

so that every consumer reads the values of the graph.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, is_fake_quantize, params_of
from onnxq.edit import describe, producer
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.ncnn.program import LONGEST_NAME, Layer, Value
from onnxq.quant.qparams import Array, QParams

CODES = (-127, 127)
"""The range that ncnn clamps codes to."""
MULTIPLY = 2
"""BinaryOp's number for products."""
_INT8, _FLOAT = 3, 1
"""Cast's numbers for types."""


REQUANTIZE = (
    "let quantizers be moved onto the nearest grids that ncnn has, with the error measured: "
    "--allow-requantize (Python: allow_requantize=True)"
)


class NotInNcnn(Exception):
    """A node that no layer written here computes."""

    def __init__(self, why: str, fix: str | None = None) -> None:
        super().__init__(why)
        self.fix = fix
        """The next step; None: the part must be removed."""


class Network:
    """Layers in the order of the graph, and the blob of each tensor."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layers: list[Layer] = []
        self.done: set[int] = set()
        """Nodes that are part of an earlier layer."""
        self._blobs: dict[int, str] = {}
        self._taken: set[str] = set()
        self._layer_names: set[str] = set()

    # -- names ------------------------------------------------------------------------------------

    def made(self, tensor: gs.Tensor) -> str:
        """A blob for a tensor that the next layer produces."""
        name = self._blobs[id(tensor)] = self.temporary(tensor.name)
        return name

    def temporary(self, base: str) -> str:
        """A blob between two layers of one node."""
        return _unique(base, self._taken)

    def add(
        self,
        kind: str,
        name: str,
        bottoms: Iterable[str],
        tops: Iterable[str],
        params: dict[int, Value] | None = None,
        weights: Iterable[Array] = (),
    ) -> None:
        """Append a layer; parameters at ncnn's own default may be left out by the caller."""
        unique = _unique(name, self._layer_names)
        bottoms, tops, params = tuple(bottoms), tuple(tops), params or {}
        self.layers.append(Layer(kind, unique, bottoms, tops, params, tuple(weights)))

    def layer(
        self,
        kind: str,
        node: gs.Node,
        params: dict[int, Value] | None = None,
        weights: Iterable[Array] = (),
        inputs: int | None = 1,
    ) -> None:
        """Append the layer that computes `node` from its first `inputs` inputs (None: all)."""
        bottoms = [self.blob(t) for t in node.inputs[:inputs]]
        self.add(kind, layer_name(node), bottoms, [self.made(node.outputs[0])], params, weights)

    # -- values -----------------------------------------------------------------------------------

    def shape(self, tensor: gs.Tensor) -> tuple[int, ...]:
        """The shape of a tensor without its batch axis."""
        node = producer(tensor)
        if tensor.shape is None and is_fake_quantize(node) and node is not None:
            return self.shape(node.inputs[0])
        if not tensor.shape:
            raise NotInNcnn(f"the shape of '{tensor.name}' is not known")
        batch, *rest = tensor.shape
        if isinstance(batch, int) and batch != 1:
            raise NotInNcnn(
                f"'{tensor.name}' has a first axis of {batch}; ncnn runs batches of 1",
                "export with batch 1 or a dynamic batch",
            )
        if not 1 <= len(rest) <= 3 or not all(isinstance(d, int) and d > 0 for d in rest):
            raise NotInNcnn(
                f"'{tensor.name}' has shape {list(tensor.shape)}; ncnn's blobs have 1 to 3 known "
                "axes after the batch"
            )
        return tuple(rest)

    def blob(self, tensor: gs.Tensor) -> str:
        """The blob with the values of `tensor`, rounded if it is quantized."""
        found = self._blobs.get(id(tensor))
        if found is not None:
            return found
        node = producer(tensor)
        if node is None or not is_fake_quantize(node):
            raise NotInNcnn(f"'{tensor.name}' is a constant here, or its producer was rejected")
        params = checked(params_of(node))
        step, name = float(params.scale), node.name or tensor.name
        source = self.blob(node.inputs[0])
        codes, plain = self.temporary(f"{tensor.name}.codes"), self.temporary(f"{tensor.name}.real")
        scale = inverse(params.scale)
        self.add("Quantize", f"{name}.quantize", [source], [codes], {0: 1}, [scale])
        self.add("Cast", f"{name}.cast", [codes], [plain], {0: _INT8, 1: _FLOAT})
        scaled = self.made(tensor)
        self.add("BinaryOp", f"{name}.scale", [plain], [scaled], {0: MULTIPLY, 1: 1, 2: step})
        return scaled

    def quantized(self, tensor: gs.Tensor) -> tuple[str, QParams] | None:
        """The blob before a quantizer and its parameters; None if there is none."""
        node = producer(tensor, FAKE_QUANTIZE)
        if node is None or is_constant(node.inputs[0]):
            return None
        return self.blob(node.inputs[0]), checked(params_of(node))

    def weight(self, tensor: gs.Tensor) -> tuple[Array, QParams | None]:
        """The values of a constant and the quantizer after it."""
        node = producer(tensor, FAKE_QUANTIZE)
        values = array(tensor if node is None else node.inputs[0])
        if values is None:
            raise NotInNcnn(f"'{tensor.name}' is computed at run time")
        if node is None:
            return values.astype(np.float32), None
        params = params_of(node)
        codes = params.quantize(values)
        within = bool(((codes >= CODES[0]) & (codes <= CODES[1])).all())
        if not (within and params.is_symmetric) or params.block:
            raise NotInNcnn(
                f"the codes of '{params.tensor}' are not all within {CODES[0]}..{CODES[1]}, with "
                "zero point 0 and one scale per tensor or channel",
                REQUANTIZE,
            )
        return values.astype(np.float32), params

    def reshape(self, name: str, bottom: str, shape: tuple[int, ...], top: str) -> None:
        """A layer that gives the same values another shape."""
        self.add("Reshape", name, [bottom], [top], dims(shape))

    def with_splits(self) -> list[Layer]:
        """The layers with a Split after every blob that several layers read."""
        uses = Counter(blob for layer in self.layers for blob in layer.bottoms)
        copies: dict[str, list[str]] = defaultdict(list)
        found: list[Layer] = []
        for layer in self.layers:
            bottoms = tuple(copies[b].pop(0) if uses[b] > 1 else b for b in layer.bottoms)
            found.append(replace(layer, bottoms=bottoms))
            for top in layer.tops:
                if uses[top] > 1:
                    copies[top] = [
                        _unique(f"{top}_split_{i}", self._taken) for i in range(uses[top])
                    ]
                    name = _unique(f"split_{top}", self._layer_names)
                    found.append(Layer("Split", name, (top,), tuple(copies[top])))
        return found


def checked(params: QParams) -> QParams:
    """`params`, if ncnn can compute on that grid."""
    if params.qtype.name != "int8" or (params.lo, params.hi) != CODES or params.zero_point.any():
        raise NotInNcnn(
            f"'{params.tensor}' is quantized to {params.qtype} {params.lo}..{params.hi}, and ncnn "
            f"has {CODES[0]}..{CODES[1]} with zero point 0",
            REQUANTIZE,
        )
    if params.axis is not None:
        raise NotInNcnn(
            f"'{params.tensor}' has one scale per channel, but ncnn supports one", REQUANTIZE
        )
    return params


def dims(shape: tuple[int, ...]) -> dict[int, Value]:
    """A shape as parameters: 0 = w, 1 = h, 2 = c."""
    return dict(enumerate(reversed(shape)))


def inverse(steps: Array) -> Array:
    """ncnn's scales multiply: the inverse of steps."""
    with np.errstate(over="ignore"):
        made = (1.0 / steps.astype(np.float64)).astype(np.float32).reshape(-1)
    if not np.isfinite(made).all():
        raise NotInNcnn(
            f"ncnn stores the inverse of a scale, and that of {steps.min()} is beyond float32",
            "recalibrate this tensor, or leave it unquantized",
        )
    return made


def layer_name(node: gs.Node) -> str:
    """The name of the layer that computes `node`."""
    return node.name or next((t.name for t in node.outputs if t.name), "") or describe(node)


def _unique(base: str, taken: set[str]) -> str:
    """A name that ncnn can read and nothing else has."""
    clean = re.sub(r"\s", "_", base) or "_"
    while len(clean.encode()) > LONGEST_NAME - 24:
        clean = clean[: len(clean) - 8]
    name, number = clean, 0
    while name in taken:
        number += 1
        name = f"{clean}_{number}"
    taken.add(name)
    return name
