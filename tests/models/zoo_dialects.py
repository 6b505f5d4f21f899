"""Models quantized in other dialects than Q/DQ: QONNX, OpenVINO's FakeQuantize, MatMulNBits.

What onnxruntime does not know is a function of the model, so that every model runs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from tests.models.dialect_functions import OPENVINO, QONNX, openvino_fake_quantize, quant
from tests.models.zoo_build import Build, channel_scale, model, tensor_scale
from tests.models.zoo_tags import DIALECTS

STEP = 0.03
MICROSOFT = "com.microsoft"


def quant_node(
    b: Build,
    x: str,
    scale: npt.ArrayLike,
    zero: float = 0,
    bits: int = 8,
    signed: int = 1,
    narrow: int = 0,
) -> str:
    """QONNX's Quant with its own parameters."""
    parameters = (b.init(np.asarray(v, np.float32)) for v in (scale, zero, bits))
    attrs = {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND", "domain": QONNX}
    return b.op("Quant", x, *parameters, **attrs)


@model(DIALECTS)
def qonnx_cnn() -> onnx.ModelProto:
    """As Brevitas writes it: narrow 4-bit weights per channel, 32-bit biases, 6 bits after Relu."""
    b = Build(17)
    b.functions.append(quant(17))
    x = quant_node(b, b.input("x", [1, 3, 6, 6]), STEP)
    for cin, cout, step in ((3, 6, STEP), (6, 4, 4 * STEP)):
        weight = b.weight_values(cout, cin, 3, 3)
        scale = channel_scale(weight, 0, 7).reshape(-1, 1, 1, 1)
        fake = quant_node(b, b.init(weight), scale, bits=4, narrow=1)
        bias = quant_node(b, b.init(b.random(cout)), [step * float(scale.mean())], bits=32)
        x = b.op("Relu", b.op("Conv", x, fake, bias, pads=[1, 1, 1, 1]))
        x = quant_node(b, x, 4 * STEP, bits=6, signed=0)
    return b.model(x)


def bounds_node(b: Build, x: str, levels: int, *bounds: npt.ArrayLike) -> str:
    """OpenVINO's FakeQuantize; two bounds serve input and output."""
    ends = [b.init(np.asarray(bound, np.float32)) for bound in bounds]
    ends = ends if len(ends) == 4 else ends * 2
    return b.op("FakeQuantize", x, *ends, levels=levels, domain=OPENVINO)


@model(DIALECTS)
def openvino_cnn() -> onnx.ModelProto:
    """255 levels per channel, 256 levels with and without sign, and a quantizer that rescales."""
    b = Build(17)
    b.functions.append(openvino_fake_quantize(17))
    x = bounds_node(b, b.input("x", [1, 3, 6, 6]), 256, -128 * STEP, 127 * STEP)
    weight = b.weight_values(6, 3, 3, 3)
    end = 127 * channel_scale(weight, 0).reshape(-1, 1, 1, 1)
    x = b.op("Relu", b.conv(x, 3, 6, weight=bounds_node(b, b.init(weight), 255, -end, end)))
    x = bounds_node(b, x, 256, 0, 255 * STEP)
    weight = b.weight_values(4, 6, 1, 1)
    end = 127 * tensor_scale(weight)
    fake = bounds_node(b, b.init(weight), 255, -end, end, -2 * end, 2 * end)
    return b.model(bounds_node(b, b.conv(x, 6, 4, k=1, weight=fake), 256, -100 * STEP, 155 * STEP))


@model(DIALECTS)
def matmul_nbits() -> onnx.ModelProto:
    """Packed 4-bit and 8-bit weights, a block that is not full, zero points, a bias, a Gather."""
    b = Build(17)
    x = b.input("x", [2, 40])
    sizes = ((40, 32, 4, 16), (32, 24, 8, 32), (24, 20, 4, 16))
    for number, (count, columns, bits, block) in enumerate(sizes):
        blocks, blob = -(-count // block), block * bits // 8
        packed = b.rng.integers(0, 256, (columns, blocks, blob)).astype(np.uint8)
        scale = b.rng.uniform(0.5, 1.0, (columns, blocks)) * 2.0 ** (2 - bits) / 8
        args = [x, b.init(packed), b.init(scale.astype(np.float32))]
        if number == 0:
            args.append(b.init(np.full((columns, -(-blocks * bits // 8)), 0x69, np.uint8)))
        if number == 2:
            args += ["", "", b.init(b.random(columns))]
        attrs = {"K": count, "N": columns, "bits": bits, "block_size": block, "domain": MICROSOFT}
        x = b.op("MatMulNBits", *args, **attrs)
    table = b.init(b.rng.integers(0, 256, (5, 16)).astype(np.uint8))
    scales = b.init(b.rng.uniform(0.01, 0.02, (5, 2)).astype(np.float32))
    attrs = {"block_size": 16, "bits": 4, "domain": MICROSOFT}
    rows = b.op("GatherBlockQuantized", table, b.ints(3, 0), scales, **attrs)
    b.typed_output(x, [2, 20])
    b.typed_output(rows, [2, 32])
    graph = b.graph()
    imports = [helper.make_opsetid("", b.opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=b.ir, producer_name="zoo")
