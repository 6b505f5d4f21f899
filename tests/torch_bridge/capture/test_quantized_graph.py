"""A graph that keeps attributes through copies and pickles."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from torch_bridge.capture.quantized_graph import Method, QuantizedGraph  # noqa: E402


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        self.names = ["a", "b"]

    def label(self, index: int) -> str:
        return self.names[index]

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def made() -> QuantizedGraph:
    model = Model()
    graph = QuantizedGraph(model, fx.Tracer().trace(model), "Model")
    graph.keep("names", model.names)
    graph.keep("label", Method(Model.label))
    graph.keep("body.stride", 8)
    graph.keep("other.part", 9)
    graph.note = "of the root"
    # Added last and called first, as the quantizers of inputs are.
    graph.add_submodule("scaled", nn.Linear(2, 2))
    x = next(iter(graph.graph.nodes))
    with graph.graph.inserting_after(x):
        node = graph.graph.call_module("scaled", (x,))
    x.replace_all_uses_with(node, delete_user_cb=lambda user: user is not node)
    graph.recompile()
    return graph


def pickled(graph: QuantizedGraph) -> QuantizedGraph:
    return pickle.loads(pickle.dumps(graph))


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
def test_attributes_methods_and_modes_survive(again: object) -> None:
    graph = made().eval()
    graph.body[1].train() if isinstance(graph.body, nn.Sequential) else graph.body.train()
    twice = again(again(graph))  # type: ignore[operator]
    assert isinstance(twice, QuantizedGraph)
    assert type(twice).__name__ == type(graph).__name__
    twice.names = ["x"]
    assert twice.label(0) == "x"
    assert graph.label(0) == "a"
    assert (twice.body.stride, twice.other.part, twice.note) == (8, 9, "of the root")
    assert [n for n, _ in twice.named_parameters()] == [n for n, _ in graph.named_parameters()]
    modes = {path: module.training for path, module in graph.named_modules()}
    assert {p: m.training for p, m in twice.named_modules() if p in modes} == modes


def test_copies_are_independent() -> None:
    graph = made().eval()
    other = copy.deepcopy(graph)
    x = torch.randn(3, 2)
    expected = graph(x)
    assert torch.equal(other(x), expected)
    with torch.no_grad():
        other.body.get_submodule("0").weight.zero_()
    for node in list(other.graph.nodes):
        if node.op == "output":
            node.args = (next(iter(other.graph.nodes)),)
    other.recompile()
    assert torch.equal(other(x), x)
    assert torch.equal(graph(x), expected)
