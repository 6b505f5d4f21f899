"""What MQBench's torch model computes, evaluated in numpy from the file that was written from it.

A file holds weights into which the batch norm was merged, W * gamma * (1 / sigma). The torch model,
whose outputs lie beside the file, computes otherwise (float32, R rounds half to even):

    layer        y = norm(conv(x, FQ(W * f)) / f), f = gamma / sigma, sigma = sqrt(variance + eps):
                 divided by f, and multiplied by it again
      with a quantized bias
                 y = norm((conv(x, FQ(W * f)) + FQ(B) - B) / f), B = -mean / sigma * gamma + beta
    FQ           (clamp(R(x * (1/s)) + z, lo, hi) - z) * s: multiplied by the reciprocal
    FQ of TQT    clamp(R(x / s), lo, hi) * s, but negative ties of an activation are rounded up

In exact numbers both are the same. In float32 it decides where values half way between two codes
go, and of those there are many: a symmetric scale for an even number of codes puts the largest
magnitude of each channel there, and where all scales are powers of two, so are the steps of sums.

Which sigma it was is not known either: the square root came from a vector library that may miss
the nearest float by one, on every processor in another way. It is recovered from weight scales,
each of which is the reach of W * f over the number of steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper, numpy_helper

ONE = np.float32(1)


@dataclass(frozen=True)
class Norm:
    """The convolution weight before a batch norm, and what the norm holds."""

    weight: np.ndarray
    gamma: np.ndarray
    beta: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    """With epsilon."""
    sigma: np.ndarray
    """Its root as training computed it."""

    @property
    def factor(self) -> np.ndarray:
        return self.gamma / self.sigma

    @property
    def bias(self) -> np.ndarray:
        return -self.mean / self.sigma * self.gamma + self.beta

    @property
    def scaled_weight(self) -> np.ndarray:
        return self.weight * self.factor.reshape(-1, 1, 1, 1)

    def apply(self, y: np.ndarray) -> np.ndarray:
        """gamma * (y - mean) / sqrt(variance) + beta as torch takes it: one factor, one offset."""
        factor = ONE / np.sqrt(self.variance) * self.gamma
        offset = _multiply_add(-self.mean, factor, self.beta)
        return _multiply_add(y, _per_channel(factor), _per_channel(offset))


@dataclass(frozen=True)
class Quantizer:
    """One of MQBench's operators."""

    source: str
    parameter: bool
    scale: np.ndarray
    zero: np.ndarray
    lo: int
    hi: int
    axis: int | None
    tqt: bool

    def apply(self, x: np.ndarray) -> np.ndarray:
        shape = [1] * x.ndim
        if self.axis is not None:
            shape[self.axis] = -1
        scale, zero = self.scale.reshape(shape), self.zero.reshape(shape)
        if not self.tqt:
            codes = np.clip(np.rint(x * (ONE / scale)) + zero, self.lo, self.hi)
            return (codes - zero) * scale
        steps = np.clip(x / scale, self.lo, self.hi)
        if self.parameter:
            return np.rint(steps) * scale
        up = (steps < 0) & (steps - np.floor(steps) == 0.5)
        return np.where(up, np.ceil(steps), np.rint(steps)) * scale

    def observed(self, weight: np.ndarray) -> np.ndarray:
        """The scales that a min-max observer gives a weight with output channels first."""
        rows = weight.reshape(len(weight), -1)
        if self.lo < 0:
            return np.abs(rows).max(1) / np.float32((self.hi - self.lo) / 2)
        span = np.maximum(rows.max(1), 0) - np.minimum(rows.min(1), 0)
        return span / np.float32(self.hi - self.lo)


class _File:
    """A graph and its constants."""

    def __init__(self, path: Path) -> None:
        self.graph = onnx.load(path).graph
        self.constants = {i.name: numpy_helper.to_array(i) for i in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.makers = {name: node for node in self.graph.node for name in node.output}

    def quantizers(self) -> Iterator[tuple[str, Quantizer]]:
        """Each of MQBench's operators, by the name of its output."""
        transposed = {n.input[1] for n in self.graph.node if n.op_type == "ConvTranspose"}
        for node in self.graph.node:
            if not node.op_type.endswith("Affine"):
                continue
            scale, zero, *bounds = (self.constants[i] for i in node.input[1:])
            held = _attributes(node)
            lo, hi = bounds or (held["quant_min"], held["quant_max"])
            yield (
                node.output[0],
                Quantizer(
                    source=node.input[0],
                    parameter=node.input[0] in self.constants,
                    # Fixed scales are written as float64, but torch computed with float32.
                    scale=scale.astype(np.float32).reshape(-1),
                    zero=np.rint(zero.astype(np.float32)).reshape(-1),
                    lo=int(lo),
                    hi=int(hi),
                    axis=int(node.output[0] in transposed) if "channel" in node.op_type else None,
                    tqt="Tqt" in node.op_type,
                ),
            )


def norms(float_file: Path, *quantized: Path) -> dict[str, Norm]:
    """The batch norms after convolutions, by the name of the weight.

    `quantized` are files that hold scales per output channel for all these weights.
    """
    file = _File(float_file)
    scales = [{q.source: q for _, q in _File(path).quantizers()} for path in quantized]
    found = {}
    for node in file.graph.node:
        if node.op_type != "BatchNormalization":
            continue
        name = file.makers[node.input[0]].input[1]
        gamma, beta, mean, variance = (file.constants[i] for i in node.input[1:])
        variance = variance + np.float32(_attributes(node)["epsilon"])
        norm = Norm(file.constants[name], gamma, beta, mean, variance, np.sqrt(variance))
        found[name] = _with_sigma(norm, [of[name] for of in scales])
    return found


def _with_sigma(norm: Norm, scales: list[Quantizer]) -> Norm:
    """Take per channel the float nearest to the root, else one beside it: which fits the scales."""
    sigma, known = norm.sigma.copy(), np.zeros(len(norm.sigma), bool)
    below, above = (np.nextafter(norm.sigma, np.float32(end)) for end in (0, np.inf))
    for tried in (norm.sigma, below, above):
        weight = replace(norm, sigma=tried).scaled_weight
        fits = np.all([q.observed(weight) == q.scale for q in scales], axis=0)
        sigma[fits & ~known] = tried[fits & ~known]
        known |= fits
    assert known.all(), "no sigma gives the scales of all files"
    return replace(norm, sigma=sigma)


class Simulation:
    """One file, computed as the torch model that it was written from."""

    def __init__(self, path: Path, norms: dict[str, Norm]) -> None:
        self.file = _File(path)
        self.norms = norms
        self.quantizers = dict(self.file.quantizers())

    def parameters(self) -> dict[str, Quantizer]:
        """The quantizers of constants, by the name of the constant."""
        return {q.source: q for q in self.quantizers.values() if q.parameter}

    def trained(self, name: str) -> np.ndarray:
        """A weight as the convolution or matrix product reads it."""
        return self.parameters()[name].apply(self._unquantized(name))

    def _unquantized(self, name: str) -> np.ndarray:
        return self.norms[name].scaled_weight if name in self.norms else self.file.constants[name]

    def run(self, x: np.ndarray, order: np.random.Generator | None = None) -> np.ndarray:
        """The output for one sample; `order` shuffles the sums of convolutions."""
        graph = self.file.graph
        values = {**self.file.constants, graph.input[0].name: x}
        for node in graph.node:
            if node.op_type == "Constant":
                continue
            quantizer = self.quantizers.get(node.output[0])
            if quantizer is not None:
                name = quantizer.source
                value = self._unquantized(name) if quantizer.parameter else values[name]
                values[node.output[0]] = quantizer.apply(value)
            elif node.op_type == "Conv":
                values[node.output[0]] = self._layer(node, values, order)
            else:
                values[node.output[0]] = _compute(node, *(values[i] for i in node.input))
        return values[graph.output[0].name]

    def _layer(
        self, node: onnx.NodeProto, values: dict[str, np.ndarray], order: np.random.Generator | None
    ) -> np.ndarray:
        """A convolution, and the batch norm that the file does not have any more."""
        x, weight, bias = (values[i] for i in node.input)
        sums = _conv(node, x, weight, order)
        norm = self.norms.get(self.quantizers[node.input[1]].source)
        if norm is None:
            return sums + _per_channel(bias)
        quantizer = self.quantizers.get(node.input[2])
        if quantizer is not None:
            sums = sums + _per_channel(quantizer.apply(norm.bias)) - _per_channel(norm.bias)
        return norm.apply(sums / _per_channel(norm.factor))


def _multiply_add(x: np.ndarray, factor: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """One instruction, so one rounding: the product of two floats is exact in float64."""
    return (x.astype(np.float64) * factor + offset).astype(np.float32)


def _per_channel(value: np.ndarray) -> np.ndarray:
    return value.reshape(1, -1, 1, 1)


def _attributes(node: onnx.NodeProto) -> dict:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _conv(
    node: onnx.NodeProto, x: np.ndarray, weight: np.ndarray, order: np.random.Generator | None
) -> np.ndarray:
    """The products of each window of one sample, added in the order given."""
    held = _attributes(node)
    top, left, bottom, right = held["pads"]
    down, across = held["strides"]
    padded = np.pad(x[0], ((0, 0), (top, bottom), (left, right)))
    windows = sliding_window_view(padded, weight.shape[2:], axis=(1, 2))[:, ::down, ::across]
    _, height, width, *_ = windows.shape
    terms = windows.transpose(0, 3, 4, 1, 2).reshape(held["group"], -1, height * width)
    rows = weight.reshape(held["group"], -1, terms.shape[1])
    if order is not None:
        shuffled = order.permutation(terms.shape[1])
        terms, rows = terms[:, shuffled], rows[:, :, shuffled]
    return np.matmul(rows, terms).reshape(1, len(weight), height, width)


def _compute(node: onnx.NodeProto, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    match node.op_type:
        case "Relu":
            return np.maximum(x, 0)
        case "Add":
            return x + others[0]
        case "Concat":
            return np.concatenate((x, *others), _attributes(node)["axis"])
        case "Flatten":
            return x.reshape(len(x), -1)
        case "GlobalAveragePool":
            return x.mean((2, 3), keepdims=True)
        case "MaxPool":
            (size, _), (step, _) = (_attributes(node)[k] for k in ("kernel_shape", "strides"))
            windows = sliding_window_view(x, (size, size), axis=(2, 3))
            return windows[:, :, ::step, ::step].max((4, 5))
        case "Gemm":
            weight, bias = others
            return x @ weight.T + bias
        case "ConvTranspose":
            return _spread(node, x, *others)
    raise NotImplementedError(node.op_type)


def _spread(
    node: onnx.NodeProto, x: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """ConvTranspose whose windows do not overlap: each input element makes one block."""
    size = weight.shape[2]
    assert _attributes(node)["strides"] == [size, size]
    blocks = np.einsum("nihw,ioyx->nohywx", x, weight)
    count, channels, height, _, width, _ = blocks.shape
    return blocks.reshape(count, channels, height * size, width * size) + _per_channel(bias)
