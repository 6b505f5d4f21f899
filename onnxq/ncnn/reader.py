"""From ncnn's .param and .bin back to a canonical graph: what the files say, as ONNX.

Only what the writer makes is read; a layer of another type, or parameters that it never writes,
are refused by name. Steps are the inverse of the stored scales, so they are right to one float32
ulp; where a tensor is rounded by layers of its own, the step is stored as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, TensorProto, helper

from onnxq.canonical.fake_quantize import DOMAIN
from onnxq.errors import LoadError
from onnxq.graph import Model, from_proto
from onnxq.ncnn import read_elementwise, read_kernels, read_moves, read_pools
from onnxq.ncnn.layer_forms import check_form, check_sizes
from onnxq.ncnn.program import Layer, read_bin, read_param
from onnxq.ncnn.read_graph import OPSET, Graph, Reader, same
from onnxq.side_files.side_file import Content


def read(files: Mapping[str, Content]) -> Model:
    """The model of both files: inverse of `onnxq.ncnn.writer.write`."""
    param, data = files["param"], files["bin"]
    if not isinstance(param, str) or not isinstance(data, bytes):
        raise LoadError("the .param file is text and the .bin file is bytes", fix="give both files")
    return model_of(read_bin(data, read_param(param)))


def model_of(layers: list[Layer]) -> Model:
    """The canonical graph of a list of layers."""
    graph = Graph()
    read_blobs = {blob for layer in layers for blob in layer.bottoms}
    for layer in layers:
        translate = READERS.get(layer.type)
        if translate is None:
            raise layer.error("a layer of this type is not read")
        check_form(layer)
        translate(graph, layer)
    for layer in layers:
        for blob in layer.tops:
            if blob in read_blobs or layer.type == "Input":
                continue
            if graph.name(blob) != blob:  # one of several copies
                graph.node("Identity", [graph.name(blob)], blob, f"{blob}.copy")
            shape = [None] * graph.rank[blob]
            info = helper.make_tensor_value_info(blob, TensorProto.FLOAT, shape)
            graph.proto.output.append(info)
    proto = ModelProto(ir_version=8, graph=graph.proto)
    proto.opset_import.extend([helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)])
    model = from_proto(proto)
    check_sizes(model, {layer.tops[0]: layer for layer in layers if layer.type == "Interp"})
    return model


READERS: dict[str, Reader] = {
    "Input": read_moves.input_,
    **dict.fromkeys(("Convolution", "ConvolutionDepthWise"), read_kernels.conv),
    **dict.fromkeys(("Deconvolution", "DeconvolutionDepthWise"), read_kernels.conv),
    "InnerProduct": read_kernels.inner_product,
    "MatMul": same("MatMul"),
    "Quantize": read_elementwise.quantize,
    "Cast": read_elementwise.cast,
    "BinaryOp": read_elementwise.binary,
    "UnaryOp": read_elementwise.unary,
    "Clip": read_elementwise.clip,
    "PReLU": read_elementwise.prelu,
    "ReLU": read_elementwise.relu,
    "ELU": same("Elu", lambda layer: {"alpha": layer.number(0, 1.0)}),
    "HardSwish": read_elementwise.hard_swish,
    "HardSigmoid": same("HardSigmoid", read_elementwise.hard),
    "Sigmoid": same("Sigmoid"),
    "TanH": same("Tanh"),
    "Erf": same("Erf"),
    "GELU": read_elementwise.gelu,
    "Mish": same("Mish"),
    "Split": read_moves.split,
    "MemoryData": read_moves.memory,
    "Reshape": read_moves.reshape,
    "Permute": read_moves.permute,
    "Slice": read_moves.slice_,
    "Crop": read_moves.crop,
    "Padding": read_moves.padding,
    "PixelShuffle": read_moves.pixel_shuffle,
    "Concat": same("Concat", lambda layer: {"axis": layer.integer(0, 0) + 1}),
    "Pooling": read_pools.pooling,
    "Interp": read_pools.interp,
    "LayerNorm": read_pools.layer_norm,
    "BatchNorm": read_pools.batch_norm,
    "InstanceNorm": read_pools.instance_norm,
    "Reduction": read_pools.reduction,
    "Softmax": read_pools.softmax,
}
"""What is read, by type of layer."""
