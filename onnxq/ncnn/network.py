"""An ncnn network being put together from a canonical graph.

ncnn has no batch axis: a tensor [1, c, h, w] is the blob (c, h, w). A Transpose may move the batch,
as attention does with queries, keys and values ([3, 1, h, n, d]): then that axis is left out.

A layer with int8 weights rounds its own input, as one FakeQuantize in front of it says: codes
-127..127, zero point 0. Where anything else reads a quantized tensor, three layers round it:

    Quantize  q = clamp(round(x * (1 / step)), -127, 127)      int8
    Cast      int8 -> float32
    BinaryOp  q * step

so that every reader sees the values that the graph says.
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
"""What ncnn clamps codes to."""
MULTIPLY = 2
"""BinaryOp's number for products."""
_INT8, _FLOAT = 3, 1
"""Cast's numbers for types."""


REQUANTIZE = (
    "let quantizers be moved onto the nearest grids that ncnn has, with the error measured: "
    "--allow-requantize (Python: allow_requantize=True)"
)


class NotInNcnn(Exception):
    """A node that no layer of ncnn computes, or none that is written here."""

    def __init__(self, why: str, fix: str | None = None) -> None:
        super().__init__(why)
        self.fix = fix
        """The next step; None: the part must go."""


class Network:
    """Layers in the order of the graph, and which blob holds which tensor."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.layers: list[Layer] = []
        self.done: set[int] = set()
        """Nodes that another one took along."""
        self._blobs: dict[int, str] = {}
        self._batch: dict[int, int] = {}
        """Where the batch of a tensor is, if it is not the first axis."""
        self._merged: set[int] = set()
        """Tensors whose batch of 1 was merged with another axis."""
        self._taken: set[str] = set()
        self._layer_names: set[str] = set()

    # -- names ------------------------------------------------------------------------------------

    def made(self, tensor: gs.Tensor) -> str:
        """A blob for a tensor that the next layer makes."""
        name = self._blobs[id(tensor)] = self.temporary(tensor.name)
        return name

    def temporary(self, base: str) -> str:
        """A blob for what lies between two layers."""
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

    # -- values -----------------------------------------------------------------------------------

    def shape(self, tensor: gs.Tensor) -> tuple[int, ...]:
        """The shape of a tensor without its batch axis."""
        node = producer(tensor)
        if tensor.shape is None and is_fake_quantize(node) and node is not None:
            return self.shape(node.inputs[0])
        if not tensor.shape:
            raise NotInNcnn(f"the shape of '{tensor.name}' is not known")
        rest = list(tensor.shape)
        at = self.batch_of(tensor)
        batch = 1 if self.lacks_batch(tensor) else rest.pop(at)
        if isinstance(batch, int) and batch != 1:
            raise NotInNcnn(
                f"'{tensor.name}' has {f'axis {at}' if at else 'a first axis'} of {batch}; ncnn "
                "runs batches of 1",
                "export with batch 1 or a dynamic batch",
            )
        if not 1 <= len(rest) <= 4 or not all(isinstance(d, int) and d > 0 for d in rest):
            raise NotInNcnn(
                f"'{tensor.name}' has shape {list(tensor.shape)}; ncnn's blobs have 1 to 4 known "
                "axes after the batch"
            )
        return tuple(rest)

    def batch_of(self, tensor: gs.Tensor) -> int:
        """The axis that is the batch."""
        node = producer(tensor, FAKE_QUANTIZE)
        return self._batch.get(id(tensor), 0) if node is None else self.batch_of(node.inputs[0])

    def move_batch(self, tensor: gs.Tensor, axis: int) -> None:
        """Let the batch of a tensor be another axis than the first."""
        if axis:
            self._batch[id(tensor)] = axis

    def lacks_batch(self, tensor: gs.Tensor) -> bool:
        """Whether no axis of a tensor is the batch, since its batch of 1 was merged with another.

        Tools write a MatMul of rows as Reshape to a matrix, Gemm and Reshape back.
        """
        node = producer(tensor, FAKE_QUANTIZE)
        return id(tensor) in self._merged if node is None else self.lacks_batch(node.inputs[0])

    def merge_batch(self, tensor: gs.Tensor) -> None:
        """Let all axes of a tensor be those of its blob."""
        self._merged.add(id(tensor))

    def batch_is_one(self, tensor: gs.Tensor) -> bool:
        """Whether the batch of a tensor is known to be 1."""
        node = producer(tensor, FAKE_QUANTIZE)
        if node is not None:
            return self.batch_is_one(node.inputs[0])
        if self.lacks_batch(tensor):
            return True
        return bool(tensor.shape) and tensor.shape[self.batch_of(tensor)] == 1

    def blob(self, tensor: gs.Tensor) -> str:
        """The blob with the values of `tensor`, rounded where it is quantized."""
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
        self.add("Quantize", f"{name}.quantize", [source], [codes], {0: 1}, [_inverse(step)])
        self.add("Cast", f"{name}.cast", [codes], [plain], {0: _INT8, 1: _FLOAT})
        scaled = self.made(tensor)
        self.add("BinaryOp", f"{name}.scale", [plain], [scaled], {0: MULTIPLY, 1: 1, 2: step})
        return scaled

    def quantized(self, tensor: gs.Tensor) -> tuple[str, QParams] | None:
        """The blob in front of a quantizer and its parameters; None where there is none."""
        node = producer(tensor, FAKE_QUANTIZE)
        if node is None or is_constant(node.inputs[0]):
            return None
        return self.blob(node.inputs[0]), checked(params_of(node))

    def weight(self, tensor: gs.Tensor) -> tuple[Array, QParams | None]:
        """The values of a constant and the quantizer behind it."""
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

    def constant(self, tensor: gs.Tensor) -> Array | None:
        """The values of a constant, rounded where it is quantized; None if it is computed."""
        node = producer(tensor, FAKE_QUANTIZE)
        values = array(tensor if node is None else node.inputs[0])
        if values is None:
            return None
        return (values if node is None else params_of(node).fake(values)).astype(np.float32)

    def real(self, tensor: gs.Tensor) -> Array:
        """The values of what must be a constant."""
        values = self.constant(tensor)
        if values is None:
            raise NotInNcnn(f"'{tensor.name}' is computed at run time")
        return values

    def reshape(self, name: str, bottom: str, shape: tuple[int, ...], top: str) -> None:
        """A layer that gives the same values another shape."""
        self.add("Reshape", name, [bottom], [top], dims(shape))

    def with_splits(self) -> list[Layer]:
        """The layers with a Split behind every blob that several layers read.

        ncnn takes the blobs that no layer reads for the outputs, so an output that is also read is
        one of the copies, and the blob they are made from has another name.
        """
        uses = Counter(blob for layer in self.layers for blob in layer.bottoms)
        ends = {self._blobs[id(t)] for t in self.model.graph.outputs}
        copies: dict[str, list[str]] = defaultdict(list)
        found: list[Layer] = []
        for layer in self.layers:
            bottoms = tuple(copies[b].pop(0) if copies[b] else b for b in layer.bottoms)
            inner = {
                t: _unique(f"{t}_made", self._taken) for t in layer.tops if t in ends and uses[t]
            }
            tops = tuple(inner.get(t, t) for t in layer.tops)
            found.append(replace(layer, bottoms=bottoms, tops=tops))
            for top in layer.tops:
                if uses[top] > 1 or top in inner:
                    copies[top] = [
                        _unique(f"{top}_split_{i}", self._taken) for i in range(uses[top])
                    ]
                    name = _unique(f"split_{top}", self._layer_names)
                    made = (top, *copies[top]) if top in inner else tuple(copies[top])
                    found.append(Layer("Split", name, (inner.get(top, top),), made))
        return found


def checked(params: QParams) -> QParams:
    """`params`, where ncnn can compute on that grid."""
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
    """A shape as parameters: 0 = w, 1 = h, 2 = c, and 11 = d between the last two."""
    keys = (0, 1, 11, 2) if len(shape) == 4 else (0, 1, 2)[: len(shape)]
    return dict(zip(keys, reversed(shape), strict=True))


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


def _inverse(step: float) -> Array:
    return inverse(np.array([step]))


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
