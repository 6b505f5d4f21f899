"""Short verbs for writing small seeded ONNX models in code, and the registry of such models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float32]
Maker = Callable[[], onnx.ModelProto]
Dims = Sequence[int | str | None]

ZOO: dict[str, Maker] = {}

# The lowest IR version that may carry an opset.
IR_OF_OPSET = {9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9}

CODE_RANGE = {
    TensorProto.INT4: (-8, 7),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT8: (0, 255),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535),
}


def model(*tags: set[str]) -> Callable[[Maker], Maker]:
    """Register a zero-argument maker under its function name, and in each tag set."""

    def register(make: Maker) -> Maker:
        name = make.__name__
        if name in ZOO:
            raise ValueError(f"two zoo models are called {name}")
        ZOO[name] = make
        for tag in tags:
            tag.add(name)
        return make

    return register


def ir_for(opset: int) -> int:
    """IR version onnxruntime and onnx.checker accept for the opset."""
    return IR_OF_OPSET.get(opset, 10)


class Build:
    """One graph under construction: every verb returns the name of the tensor it made."""

    def __init__(self, opset: int = 17, *, ir: int | None = None, seed: int = 0) -> None:
        self.opset = opset
        self.ir = ir or ir_for(opset)
        self.rng = np.random.default_rng(seed)
        self.counter = [0]
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []

    def body(self) -> Build:
        """A subgraph of this graph: same random stream and name counter, own nodes."""
        child = Build(self.opset, ir=self.ir)
        child.rng, child.counter = self.rng, self.counter
        return child

    def fresh(self, base: str) -> str:
        self.counter[0] += 1
        return f"{base}_{self.counter[0]}"

    def input(self, name: str, shape: Dims, dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def init(self, value: npt.ArrayLike | onnx.TensorProto, name: str | None = None) -> str:
        """An initializer; Python floats become float32, since float64 graphs are not meant."""
        name = name or self.fresh("const")
        if not isinstance(value, onnx.TensorProto):
            array = np.asarray(value)
            value = numpy_helper.from_array(
                array.astype(np.float32) if array.dtype == np.float64 else array
            )
        value.name = name
        self.initializers.append(value)
        return name

    def ints(self, *values: int) -> str:
        return self.init(np.array(values, np.int64))

    def random(self, *shape: int, scale: float = 1.0) -> Floats:
        return np.asarray(self.rng.standard_normal(shape) * scale, np.float32)

    def weight(self, *shape: int, name: str | None = None) -> str:
        """A random weight scaled so that activations keep about unit size."""
        return self.init(self.weight_values(*shape), name or self.fresh("weight"))

    def weight_values(self, *shape: int) -> Floats:
        fan_in = max(1, int(np.prod(shape[1:])) if len(shape) > 2 else shape[0])
        return self.random(*shape, scale=fan_in**-0.5)

    def op(self, op_type: str, *args: str, out: str | None = None, **attrs: Any) -> str:
        """Append a one-output node."""
        return self.ops(op_type, *args, outs=[out or self.fresh(op_type.lower())], **attrs)[0]

    def ops(
        self,
        op_type: str,
        *args: str,
        outs: Sequence[str],
        domain: str = "",
        **attrs: Any,
    ) -> Sequence[str]:
        """Append a node whose outputs are named by the caller."""
        node = helper.make_node(
            op_type, args, outs, name=self.fresh(f"{op_type}_node"), domain=domain, **attrs
        )
        self.nodes.append(node)
        return outs

    def constant(self, value: npt.ArrayLike, out: str | None = None) -> str:
        """A Constant node, where `init` would make an initializer."""
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        return self.op("Constant", out=out, value=numpy_helper.from_array(array))

    # Layers

    def conv(
        self,
        x: str,
        cin: int,
        cout: int,
        k: int = 3,
        *,
        bias: bool = True,
        group: int = 1,
        weight: str | None = None,
        out: str | None = None,
        **attrs: Any,
    ) -> str:
        """A 2-D Conv that keeps height and width unless told otherwise by the attributes."""
        weight = weight or self.weight(cout, cin // group, k, k)
        args = [x, weight] + ([self.init(self.random(cout))] if bias else [])
        attrs.setdefault("pads", [k // 2] * 4)
        return self.op("Conv", *args, out=out, group=group, kernel_shape=[k, k], **attrs)

    def bn(
        self,
        x: str,
        channels: int,
        *,
        gamma: npt.ArrayLike | None = None,
        epsilon: float | None = 1e-3,
        out: str | None = None,
    ) -> str:
        """BatchNormalization with random statistics; epsilon None leaves ONNX's default."""
        if gamma is None:
            gamma = self.rng.uniform(0.5, 1.5, channels)
        params = [
            self.init(np.asarray(gamma, np.float32)),
            self.init(self.random(channels)),
            self.init(self.random(channels, scale=0.5)),
            self.init(self.rng.uniform(0.5, 2.0, channels)),
        ]
        attrs = {} if epsilon is None else {"epsilon": epsilon}
        return self.op("BatchNormalization", x, *params, out=out, **attrs)

    # Quantization

    def codes(self, value: npt.ArrayLike, dtype: int, name: str | None = None) -> str:
        """An initializer of integer codes or zero points, 4-bit types included."""
        array = np.asarray(value)
        name = name or self.fresh("codes")
        tensor = helper.make_tensor(name, dtype, array.shape, array.astype(int).flatten())
        return self.init(tensor, name)

    def qdq(
        self,
        x: str,
        scale: npt.ArrayLike,
        zero_point: npt.ArrayLike = 0,
        dtype: int = TensorProto.INT8,
        *,
        axis: int | None = None,
        clip: tuple[int, int] | None = None,
        out: str | None = None,
        **attrs: int,
    ) -> str:
        """QuantizeLinear (→ Clip) → DequantizeLinear with their own scale and zero point."""
        step = self.init(np.asarray(scale, np.float32), self.fresh("scale"))
        shift = np.broadcast_to(np.asarray(zero_point), np.shape(scale))
        zero = self.codes(shift, dtype, self.fresh("zero_point"))
        if axis is not None:
            attrs["axis"] = axis
        q = self.op("QuantizeLinear", x, step, zero, **attrs)
        if clip is not None:
            q = self.op("Clip", q, *(self.codes(bound, dtype) for bound in clip))
        return self.op("DequantizeLinear", q, step, zero, out=out, **attrs)

    def stored(
        self,
        weight: Floats,
        scale: npt.ArrayLike,
        dtype: int = TensorProto.INT8,
        *,
        axis: int | None = None,
        block: int = 0,
        zero_point: int | None = 0,
        narrow: bool = False,
    ) -> str:
        """Integer codes of the weight behind a DequantizeLinear; zero_point None leaves it out."""
        step = np.asarray(scale, np.float32)
        lo, hi = CODE_RANGE[dtype]
        codes = np.rint(weight / spread(step, weight.shape, axis, block)) + (zero_point or 0)
        args = [
            self.codes(np.clip(codes, lo + narrow, hi), dtype, self.fresh("weight_codes")),
            self.init(step, self.fresh("scale")),
        ]
        if zero_point is not None:
            zero = np.full(step.shape, zero_point)
            args.append(self.codes(zero, dtype, self.fresh("zero_point")))
        attrs = ({} if axis is None else {"axis": axis}) | ({"block_size": block} if block else {})
        return self.op("DequantizeLinear", *args, **attrs)

    def bias32(self, bias: Floats, scale: npt.ArrayLike) -> str:
        """An int32 bias behind a DequantizeLinear of the given (input × weight) scale."""
        step = np.asarray(scale, np.float32)
        codes = self.init(np.rint(bias / step).astype(np.int32), self.fresh("bias_codes"))
        axis = {"axis": 0} if step.ndim and self.opset >= 13 else {}
        return self.op("DequantizeLinear", codes, self.init(step, self.fresh("scale")), **axis)

    # Finish

    def output(self, *names: str) -> None:
        """Declare outputs whose type shape inference will find."""
        self.outputs += [helper.make_empty_tensor_value_info(name) for name in names]

    def typed_output(self, name: str, shape: Dims, dtype: int = TensorProto.FLOAT) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))

    def graph(self, name: str = "zoo") -> onnx.GraphProto:
        return helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, initializer=self.initializers
        )

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished model, its outputs typed by shape inference and value_info left empty."""
        self.output(*outputs)
        domains = {function.domain for function in self.functions}
        proto = helper.make_model(
            self.graph(),
            ir_version=self.ir,
            opset_imports=[helper.make_opsetid("", self.opset)]
            + [helper.make_opsetid(domain, 1) for domain in sorted(domains)],
            functions=self.functions,
            producer_name="zoo",
        )
        proto = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
        del proto.graph.value_info[:]
        return proto


def channel_scale(weight: Floats, axis: int, hi: int = 127) -> Floats:
    """Symmetric scale per channel, max|w| / hi; an all-zero channel gets 1."""
    peak = np.abs(weight).max(axis=tuple(i for i in range(weight.ndim) if i != axis))
    return np.asarray(np.where(peak == 0, 1.0, peak / hi), np.float32)


def tensor_scale(weight: Floats, hi: int = 127) -> np.float32:
    """Symmetric scale per tensor, max|w| / hi."""
    return np.float32(np.abs(weight).max() / hi)


def spread(scale: Floats, shape: Sequence[int], axis: int | None, block: int = 0) -> Floats:
    """The scale broadcast to the shape it quantizes: per tensor, per channel or per block."""
    if block:
        assert axis is not None
        return np.repeat(scale, block, axis)
    if scale.ndim == 1 and axis is not None:
        return scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return scale
