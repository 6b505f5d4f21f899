"""What names in an exported file must tell."""

from __future__ import annotations

import onnx
from torch import nn

from torch_bridge.state import quantizers


def assert_names(proto: onnx.ModelProto, model: nn.Module, merged: bool = False) -> None:
    """Nodes are named after their modules; quantizers are modules, with constants of their own.

    dynamo makes one node of equal quantizers on one tensor (`merged`).
    """
    modules = dict(model.named_modules())
    assert len({n.name for n in proto.graph.node}) == len(proto.graph.node)
    paths = {n.name.rpartition("/")[0] for n in proto.graph.node if n.op_type != "FakeQuantize"}
    assert paths <= set(modules)
    layers = {p for p, m in modules.items() if hasattr(m, "weight_fake_quant")}
    assert layers <= paths
    fakes = {n.name: n for n in proto.graph.node if n.op_type == "FakeQuantize"}
    assert merged or set(quantizers(model)) <= set(fakes)
    constants = [name for n in fakes.values() for name in n.input[1:]]
    assert len(set(constants)) == len(constants) == 2 * len(fakes)
    for path in set(quantizers(model)) & set(fakes):
        assert list(fakes[path].input[1:]) == [f"{path}.scale", f"{path}.zero_point"]
