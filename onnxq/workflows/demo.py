"""The small quantized network that `onnxq demo` converts.

Conv+BN+Relu, a residual block, a depthwise convolution with ReLU6, pooling and a classifier, with
seeded random weights, trained-like BatchNorm statistics (one negative gamma) and int8 quantizers
as a fake-quantization export leaves them: activations before every layer, weights per channel.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
from numpy.typing import ArrayLike

from onnxq.canonical import fake_quantize
from onnxq.disk.file_set import FileSet
from onnxq.edit import constant, insert, new_node, producer, variable
from onnxq.graph import Model, new_model
from onnxq.operators.weight_axis import weight_axis
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions


class _Builder:
    """Adds layers one after another."""

    def __init__(self, seed: int) -> None:
        self.model = new_model("demo", opset=17, ir_version=8)
        self.random = np.random.default_rng(seed)
        self.image = gs.Variable("image", np.dtype(np.float32), ["batch", 3, 32, 32])
        self.image.owner = self.model.graph
        self.model.graph.inputs.append(self.image)

    def op(self, op: str, name: str, *inputs: gs.Tensor, **attrs: object) -> gs.Tensor:
        out = variable(self.model, f"{name}.out", like=None)
        new_node(self.model, op, list(inputs), [out], name=name, attrs=attrs)
        return out

    def constant(self, name: str, values: ArrayLike) -> gs.Constant:
        return constant(self.model, name, np.asarray(values, np.float32))

    def weight(self, name: str, *shape: int) -> gs.Constant:
        # Spread over the channels, as trained weights are: one scale for all would waste bits.
        spread = self.random.uniform(0.2, 1.0, (shape[0], *[1] * (len(shape) - 1)))
        fan_in = float(np.prod(shape[1:]))
        return self.constant(name, self.random.normal(size=shape) * spread * (2.0 / fan_in) ** 0.5)

    def conv(self, name: str, x: gs.Tensor, *shape: int, **attrs: object) -> gs.Tensor:
        """A convolution with a weight of `shape`, and its BatchNorm."""
        pads = [shape[2] // 2] * 4
        weight = self.weight(f"{name}.weight", *shape)
        y = self.op("Conv", name, x, weight, kernel_shape=list(shape[2:]), pads=pads, **attrs)
        gamma = self.random.uniform(0.5, 1.5, shape[0])
        gamma[shape[0] // 2] *= -1
        statistics = {
            "weight": gamma,
            "bias": self.random.normal(0.2, 0.2, shape[0]),
            "running_mean": self.random.normal(0, 0.2, shape[0]),
            "running_var": self.random.uniform(0.5, 1.5, shape[0]),
        }
        inputs = [self.constant(f"{name}.bn.{key}", value) for key, value in statistics.items()]
        return self.op("BatchNormalization", f"{name}.bn", y, *inputs, epsilon=1e-5)


def build(seed: int = 0, width: int = 16) -> Model:
    """The float network, with `width` channels in its convolutions."""
    b = _Builder(seed)
    stem = b.op("Relu", "stem.relu", b.conv("stem", b.image, width, 3, 3, 3, strides=[2, 2]))
    inner = b.op("Relu", "block.relu1", b.conv("block.conv1", stem, width, width, 3, 3))
    added = b.op("Add", "block.add", b.conv("block.conv2", inner, width, width, 3, 3), stem)
    block = b.op("Relu", "block.relu2", added)
    bounds = b.constant("relu6.min", 0), b.constant("relu6.max", 6)
    deep = b.conv("depthwise", block, width, 1, 3, 3, group=width)
    deep = b.op("Clip", "depthwise.relu6", deep, *bounds)
    pooled = b.op("MaxPool", "pool", deep, kernel_shape=[2, 2], strides=[2, 2])
    point = b.op("Relu", "pointwise.relu", b.conv("pointwise", pooled, 2 * width, width, 1, 1))
    flat = b.op("Flatten", "flatten", b.op("GlobalAveragePool", "gap", point), axis=1)
    weight = b.weight("classifier.weight", 10, 2 * width)
    bias = b.constant("classifier.bias", b.random.normal(0, 0.1, 10))
    logits = gs.Variable("logits", np.dtype(np.float32), ["batch", 10])
    inputs = [flat, weight, bias]
    new_node(b.model, "Gemm", inputs, [logits], name="classifier", attrs={"transB": 1})
    b.model.graph.outputs.append(logits)
    b.model.refresh()
    b.model.check()
    return b.model


def quantize(model: Model, samples: int = 8, seed: int = 0) -> Model:
    """Put int8 quantizers before every layer, with ranges seen on random images."""
    tensors: dict[str, gs.Tensor] = {}
    for node in model.nodes("Conv", "Gemm", "Add", "MaxPool", "GlobalAveragePool"):
        for tensor in node.inputs[: 2 if node.op == "Add" else 1]:
            tensors[tensor.name] = tensor
    tensors["logits"] = model.graph.outputs[0]
    seen = _ranges(sessions.reference(model, taps=tensors), list(tensors), samples, seed)
    for name, tensor in tensors.items():
        scale = np.array(seen[name] / 127, np.float32)
        _fake(model, tensor, QParams(name, qtype("int8"), scale, np.zeros(())))
    for node in model.nodes("Conv", "Gemm"):
        weight = node.inputs[1]
        layout = weight_axis(node, weight.values.ndim)
        assert layout is not None
        rest = tuple(i for i in range(weight.values.ndim) if i != layout.axis)
        # The range of what is deployed: BatchNorm's gain changes scales, not codes.
        scale = np.abs(weight.values).max(axis=rest) / 127
        params = QParams(weight.name, qtype("int8"), scale, np.zeros(()), axis=layout.axis, lo=-127)
        _fake(model, weight, params.with_(role=Role.WEIGHT))
    model.check()
    return model


def _fake(model: Model, tensor: gs.Tensor, params: QParams) -> None:
    maker = producer(tensor)
    name = f"{tensor.name if maker is None else maker.name}.fake_quantize"
    insert(
        model, tensor, lambda x, y, graph: fake_quantize.make(model, x, y, params, graph, name=name)
    )


def _ranges(run: sessions.Session, names: list[str], samples: int, seed: int) -> dict[str, float]:
    highest = dict.fromkeys(names, 0.0)
    for image in _images(samples, seed):
        made = {"image": image, **run.run({"image": image})}
        for name in names:
            highest[name] = max(highest[name], float(np.abs(made[name]).max()))
    return highest


def _images(samples: int = 8, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=(1, 3, 32, 32)).astype(np.float32) for _ in range(samples)]


def save_images(path: Path) -> None:
    """Write the images that the ranges were seen on, as data for commands."""
    file = io.BytesIO()
    np.savez(file, image=np.concatenate(_images()))
    with FileSet(path.parent, (path.name,)) as files:
        files.stage(path.name).write(file.getvalue())
