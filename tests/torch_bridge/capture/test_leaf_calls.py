"""Calls of whole modules, recorded while torch.export runs a model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from torch_bridge.capture.leaf_calls import LEAF, LeafCalls, with_values  # noqa: E402


class Inner(nn.Module):
    def forward(self, x: Tensor, *, scale: float, parts: int) -> dict[str, object]:
        return {"x": x * scale, "parts": list(x.chunk(parts)), "name": "inner"}


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.same = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(self.same(x), scale=2.0, parts=2)
        assert found["name"] == "inner"
        return found["x"] + torch.cat(found["parts"])


def test_a_call_is_one_operator_whose_record_has_arguments_and_result() -> None:
    model = Outer()
    with LeafCalls() as calls:
        for path in ("inner", "same"):
            calls.replace(path, model.get_submodule(path))
        program = torch.export.export(model, (torch.randn(4, 3),), strict=False)
    nodes = [n for n in program.graph.nodes if n.target is LEAF]
    made = [calls.made[n.args[2]] for n in nodes]
    assert [call.path for call in made] == ["same", "inner"]
    args, kwargs = with_values(made[1], ["x"], [])
    assert (args, kwargs) == (("x",), {"scale": 2.0, "parts": 2})
    assert [tuple(part.shape) for part in made[1].result["parts"]] == [(2, 3), (2, 3)]
    assert {n.target for n in program.graph.nodes if n.op == "call_function"} > {LEAF}
    assert not any("mul" in str(n.target) for n in program.graph.nodes), "it was not looked into"
