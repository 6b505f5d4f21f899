"""The small quantized network that `onnxq demo` converts.

Conv+BN+Relu, a residual block, a depthwise convolution with ReLU6, pooling and a classifier, with
seeded random weights, trained-like BatchNorm statistics (one negative gamma) and int8 quantizers
as a fake-quantization export leaves them: activations before every layer, weights per channel.
"""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.edit import constant, insert, new_node, producer, variable
from onnxq.graph import Model, new_model
from onnxq.operators.weight_axis import weight_axis
from onnxq.quant.qparams import Array, QParams, Role
from onnxq.quant.qtypes import qtype


class _Builder:
    """Adds layers one after the other."""

    def __init__(self, seed: int) -> None:
        self.model = new_model("demo", opset=17, ir_version=8)
        self.random = np.random.default_rng(seed)
        x = gs.Variable("image", np.dtype(np.float32), ["batch", 3, 32, 32])
        x.owner = self.model.graph
        self.model.graph.inputs.append(x)
        self.image = x

    def op(self, op: str, name: str, *inputs: gs.Tensor, **attrs: object) -> gs.Tensor:
        out = variable(self.model, f"{name}.out", like=None)
        new_node(self.model, op, list(inputs), [out], name=name, attrs=dict(attrs))
        return out

    def weight(self, name: str, *shape: int) -> gs.Constant:
        # Spread over the channels, as trained weights are: one scale for all would waste bits.
        spread = self.random.uniform(0.2, 1.0, (shape[0], *[1] * (len(shape) - 1)))
        fan_in = float(np.prod(shape[1:]))
        values = self.random.normal(size=shape) * spread * (2.0 / fan_in) ** 0.5
        return constant(self.model, name, values.astype(np.float32))

    def conv(
        self,
        name: str,
        x: gs.Tensor,
        c_in: int,
        c_out: int,
        k: int,
        stride: int = 1,
        group: int = 1,
    ) -> gs.Tensor:
        weight = self.weight(f"{name}.weight", c_out, c_in // group, k, k)
        pads = [k // 2] * 4
        y = self.op(
            "Conv",
            name,
            x,
            weight,
            kernel_shape=[k, k],
            strides=[stride] * 2,
            pads=pads,
            group=group,
        )
        return self.batch_norm(f"{name}.bn", y, c_out)

    def batch_norm(self, name: str, x: gs.Tensor, channels: int) -> gs.Tensor:
        gamma = self.random.uniform(0.5, 1.5, channels)
        gamma[channels // 2] *= -1
        statistics = {
            "weight": gamma,
            "bias": self.random.normal(0.2, 0.2, channels),
            "running_mean": self.random.normal(0, 0.2, channels),
            "running_var": self.random.uniform(0.5, 1.5, channels),
        }
        inputs = [
            constant(self.model, f"{name}.{key}", value.astype(np.float32))
            for key, value in statistics.items()
        ]
        return self.op("BatchNormalization", name, x, *inputs, epsilon=1e-5)


def build(seed: int = 0) -> Model:
    """The float network."""
    b = _Builder(seed)
    stem = b.op("Relu", "stem.relu", b.conv("stem", b.image, 3, 16, 3, stride=2))
    inner = b.op("Relu", "block.relu1", b.conv("block.conv1", stem, 16, 16, 3))
    added = b.op("Add", "block.add", b.conv("block.conv2", inner, 16, 16, 3), stem)
    block = b.op("Relu", "block.relu2", added)
    low, high = (
        constant(b.model, n, np.float32(v)) for n, v in (("relu6.min", 0), ("relu6.max", 6))
    )
    deep = b.op(
        "Clip", "depthwise.relu6", b.conv("depthwise", block, 16, 16, 3, group=16), low, high
    )
    pooled = b.op("MaxPool", "pool", deep, kernel_shape=[2, 2], strides=[2, 2])
    point = b.op("Relu", "pointwise.relu", b.conv("pointwise", pooled, 16, 32, 1))
    flat = b.op("Flatten", "flatten", b.op("GlobalAveragePool", "gap", point), axis=1)
    weight = b.weight("classifier.weight", 10, 32)
    bias = constant(b.model, "classifier.bias", b.random.normal(0, 0.1, 10).astype(np.float32))
    logits = gs.Variable("logits", np.dtype(np.float32), ["batch", 10])
    new_node(
        b.model, "Gemm", [flat, weight, bias], [logits], name="classifier", attrs={"transB": 1}
    )
    b.model.graph.outputs.append(logits)
    b.model.refresh()
    b.model.check()
    return b.model


QUANTIZED = ("Conv", "Gemm", "Add", "MaxPool", "GlobalAveragePool")


def quantize(model: Model, samples: int = 8, seed: int = 0) -> Model:
    """Put int8 quantizers before every layer, with ranges seen on random images."""
    from onnxq.running import sessions

    tensors: dict[str, gs.Tensor] = {}
    for node in model.nodes(*QUANTIZED):
        for tensor in node.inputs[: 2 if node.op == "Add" else 1]:
            tensors[tensor.name] = tensor
    tensors["logits"] = model.graph.outputs[0]
    seen = _ranges(sessions.reference(model, taps=tensors), list(tensors), samples, seed)
    for name, tensor in tensors.items():
        params = QParams(name, qtype("int8"), np.array(seen[name] / 127, np.float32), np.zeros(()))
        _fake(model, tensor, params)
    for node in model.nodes("Conv", "Gemm"):
        weight = node.inputs[1]
        values = weight.values
        layout = weight_axis(node, values.ndim)
        assert layout is not None
        rest = tuple(i for i in range(values.ndim) if i != layout.axis)
        # The range of what is deployed: BatchNorm's gain changes scales, not codes.
        scale = np.abs(values).max(axis=rest) / 127
        params = QParams(
            weight.name,
            qtype("int8"),
            scale,
            np.zeros(()),
            axis=layout.axis,
            lo=-127,
            role=Role.WEIGHT,
        )
        _fake(model, weight, params)
    model.check()
    return model


def _fake(model: Model, tensor: gs.Tensor, params: QParams) -> None:
    maker = producer(tensor)
    name = f"{maker.name if maker is not None else tensor.name}.fake_quantize"
    insert(
        model, tensor, lambda x, y, graph: fake_quantize.make(model, x, y, params, graph, name=name)
    )


def _ranges(session: object, names: list[str], samples: int, seed: int) -> dict[str, float]:
    random = np.random.default_rng(seed)
    highest = dict.fromkeys(names, 0.0)
    for _ in range(samples):
        image: Array = random.normal(size=(1, 3, 32, 32)).astype(np.float32)
        made = {"image": image, **session.run({"image": image})}  # type: ignore[attr-defined]
        for name in names:
            highest[name] = max(highest[name], float(np.abs(made[name]).max()))
    return highest
