"""FX graphs of small models, and how to compare them with what they were traced from."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from tests.torch_bridge.nn.layers import randomise  # noqa: E402
from torch_bridge.insertion import fusion  # noqa: E402


class LeafTracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf = type(m) in fusion.leaf_types()
        return leaf or super().is_leaf_module(m, module_qualified_name)


def traced(model: nn.Module) -> fx.GraphModule:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            randomise(module)
    return fx.GraphModule(model, LeafTracer().trace(model))


def targets(graph_module: fx.GraphModule) -> list[str]:
    inner = (n for n in graph_module.graph.nodes if n.op not in ("placeholder", "output"))
    return [str(n.target) if n.op == "call_module" else n.name for n in inner]


def same(model: nn.Module, twin: nn.Module, *inputs: Tensor) -> None:
    """Both models compute the same in training and in eval."""
    for mode in (True, False):
        for _ in range(2):
            expected, got = model.train(mode)(*inputs), twin.train(mode)(*inputs)
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
