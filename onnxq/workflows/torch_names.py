"""Finds the torch module that made a node, and the name of a step of the network for `tb.prepare`.

Names contain both: `torch_bridge` exports a layer as 'layer1.0.conv1/Conv', a quantizer of a weight
as 'layer1.0.conv1.weight_fake_quant', and one of an activation under the name of the step that
computes it in the traced network ('add_1_fake_quant'). torch's own dynamo exporter writes the path
into metadata.
"""

from __future__ import annotations

import ast

import onnx_graphsurgeon as gs

from onnxq.canonical.quantizers import is_quantizer
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.storage.node_metadata import metadata

_SCOPES = "pkg.torch.onnx.name_scopes"
_QUANTIZER, _ACTIVATION = "_fake_quant", ".activation"


def module_of(node: gs.Node) -> str:
    """The path of the torch module that made `node`; '' if unknown."""
    name = str(node.name)
    if is_quantizer(node) and name.endswith(f".weight{_QUANTIZER}"):
        return name.removesuffix(f".weight{_QUANTIZER}")
    path, slash, _ = name.rpartition("/")
    if slash and path and not path.startswith("/"):
        return path.removesuffix(_ACTIVATION)
    return innermost_scope(node)


def innermost_scope(node: gs.Node) -> str:
    """The innermost module in the metadata that torch's dynamo exporter writes; '' if none.

    In a list of scopes such as ['', 'model', 'model.stem', 'conv2d'] the last is the node itself.
    """
    text = metadata(node).get(_SCOPES, "")
    try:
        scopes = ast.literal_eval(text) if text else []
    except (SyntaxError, ValueError):
        return ""
    inner = [s for s in scopes[:-1] if isinstance(s, str) and s] if type(scopes) is list else []
    return inner[-1] if inner else ""


def selector_of(node: gs.Node) -> str:
    """The value of `exclude` that keeps `node` float; '' if unknown.

    A layer is named by its module. A function such as x + y has no module of its own: its name in
    the traced network is in the name of the quantizer after it.
    """
    if node.op in LINEAR_OPS:
        return module_of(node)
    for tensor in node.outputs:
        for reader in tensor.outputs:
            name = str(reader.name)
            if is_quantizer(reader) and name.endswith(_QUANTIZER) and "." not in name:
                return name.removesuffix(_QUANTIZER)
    return module_of(node)
