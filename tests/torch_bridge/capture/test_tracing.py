"""Tracing: leaves where it fails, one graph for both modes, arguments as the user knows them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge.capture.example_call import ExampleCall  # noqa: E402
from torch_bridge.capture.tracing import (  # noqa: E402
    OWNER,
    Traced,
    TraceOptions,
    fresh_name,
    inside,
    structural_copy,
    trace,
)


def traced(model: nn.Module, *args: Any, **kwargs: Any) -> Traced:
    options = kwargs.pop("options", TraceOptions())
    return trace(model, ExampleCall(model, args, kwargs), options)


class Branch(nn.Module):
    """Fails to trace: looks at a value."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return self.layer(x) if x.sum() > 0 else x


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([Branch(), Branch()])
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x) + 1


class DropPath(nn.Module):
    """Does more in training than in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * torch.empty_like(x).bernoulli_(0.5)


class Stochastic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.layer(x))


def test_each_failing_module_becomes_a_leaf_and_the_model_is_untouched() -> None:
    model = Outer()
    found = traced(model, torch.randn(2, 4))
    assert [leaf.path for leaf in found.leaves] == ["blocks.0", "blocks.1"]
    assert found.graph_module is not None
    called = [str(n.target) for n in found.graph_module.graph.nodes if n.op == "call_module"]
    assert called == ["first", "blocks.0", "blocks.1", "last"]
    assert model.blocks[0].seen is None
    assert found.graph_module.first.weight is model.first.weight


def test_the_graph_computes_the_same() -> None:
    model = Outer()
    x = torch.randn(2, 4)
    made = traced(model, x).graph_module
    assert torch.equal(made(x), model(x))
    assert torch.equal(made(-x), model(-x))


def test_a_root_that_fails_has_no_graph() -> None:
    found = traced(Branch(), torch.randn(2, 4))
    assert found.graph_module is None
    assert [leaf.path for leaf in found.leaves] == [""]
    assert str(found.leaves[0]).startswith("the model itself: TraceError")


def test_a_module_that_differs_between_modes_is_one_node() -> None:
    found = traced(Stochastic(), torch.randn(2, 4))
    assert found.leaves == [], "it does nothing in evaluation, so nothing is lost"
    assert "drop" in {n.target for n in found.graph_module.graph.nodes}
    made, x = found.graph_module, torch.randn(64, 4)
    assert not torch.equal(made.train()(x), made(x))
    assert torch.equal(made.eval()(x), made(x))


def test_a_root_that_differs_between_modes_has_no_graph() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Any:
            y = self.layer(x)
            return (y, y * 2) if self.training else y

    found = traced(Auxiliary(), torch.randn(2, 4))
    assert found.graph_module is None


def test_values_that_follow_the_mode_are_read_from_the_module_that_used_them() -> None:
    class Part(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(x, p=0.5, training=self.training)

    made = traced(nn.Sequential(nn.Linear(4, 4), Part()), torch.randn(2, 4)).graph_module
    x = torch.randn(64, 4)
    assert made.training
    made.eval()
    assert torch.equal(made(x), made(x))
    made.get_submodule("1").train()  # this part alone, as one may freeze the others
    assert not torch.equal(made(x), made(x))
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(again.eval()(x), again(x))
        again.train()
        assert not torch.equal(again(x), again(x))


def test_modes_of_single_modules_are_kept() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    model[1].eval()
    made = traced(model, torch.randn(2, 4)).graph_module
    assert made.training
    assert not made.get_submodule("1").training


def test_nodes_know_whose_code_made_them() -> None:
    made = traced(nn.Sequential(Stochastic()), torch.randn(2, 4)).graph_module
    owners = {n.name: n.meta[OWNER] for n in made.graph.nodes if n.op == "call_function"}
    assert owners == {"add": "0"}


# -- arguments ----------------------------------------------------------------------------------


class Arguments(nn.Module):
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor,
        flag: bool = False,
        gain: float = 2.0,
    ) -> Tensor:
        if mask is not None:
            x = x * mask
        if flag:
            x = -x
        return x * gain + bias


def test_arguments_keep_their_names_and_defaults() -> None:
    model, x, bias = Arguments(), torch.ones(3), torch.zeros(3)
    made = traced(model, x, bias=bias).graph_module
    for again in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(again(x, bias=bias), 2 * x)
        assert torch.equal(again(x=x, bias=bias + 1, gain=3.0), 3 * x + 1)
        assert torch.equal(again(x, None, bias=bias, flag=False), 2 * x)


@pytest.mark.parametrize("other", [{"mask": torch.ones(3)}, {"flag": True}])
def test_another_value_of_an_argument_that_was_branched_on_is_refused(other: Any) -> None:
    made = traced(Arguments(), torch.ones(3), bias=torch.zeros(3)).graph_module
    with pytest.raises(OptionError, match=f"prepared with {next(iter(other))}="):
        made(torch.ones(3), bias=torch.zeros(3), **other)


def test_a_required_keyword_is_required() -> None:
    made = traced(Arguments(), torch.ones(3), bias=torch.zeros(3)).graph_module
    with pytest.raises(TypeError, match="missing required keyword argument 'bias'"):
        made(torch.ones(3))


def test_an_argument_given_in_the_example_stays_an_input() -> None:
    x, mask = torch.ones(3), torch.tensor([0.0, 1.0, 2.0])
    made = traced(Arguments(), x, mask, bias=torch.zeros(3)).graph_module
    assert torch.equal(made(x, 3 * mask, bias=torch.zeros(3)), 6 * mask)


def test_arguments_whose_names_look_like_numbered_ones() -> None:
    class Numbered(nn.Module):
        def forward(self, y: Tensor, x: bool = True, x_1: Tensor | None = None) -> Tensor:
            return y + x_1 if x else y

    y = torch.ones(2)
    made = traced(Numbered(), y, True, 2 * y).graph_module
    assert torch.equal(made(y, x_1=4 * y), 5 * y)


def test_lists_and_dicts_of_tensors() -> None:
    class Both(nn.Module):
        def forward(self, parts: list[Tensor], extra: dict[str, Tensor]) -> dict[str, Tensor]:
            total = extra["first"]
            for part in parts:
                total = total + part
            return {"total": total}

    parts, extra = [torch.ones(2), torch.ones(2)], {"first": torch.zeros(2)}
    made = traced(Both(), parts, extra).graph_module
    assert torch.equal(made(parts, extra)["total"], torch.full((2,), 2.0))


def test_numbers_that_are_looped_over_become_part_of_the_graph() -> None:
    class Repeat(nn.Module):
        def forward(self, x: Tensor, times: int) -> Tensor:
            for _ in range(times):
                x = x + 1
            return x

    made = traced(Repeat(), torch.zeros(2), 3).graph_module
    assert torch.equal(made(torch.zeros(2), 3), torch.full((2,), 3.0))
    with pytest.raises(OptionError, match="prepared with times=3"):
        made(torch.zeros(2), 4)


def test_concrete_args_of_the_user() -> None:
    options = TraceOptions(concrete_args={"gain": 5.0})
    made = traced(Arguments(), torch.ones(2), bias=torch.zeros(2), gain=5.0, options=options)
    assert torch.equal(
        made.graph_module(torch.ones(2), bias=torch.zeros(2), gain=5.0), torch.full((2,), 5.0)
    )


# -- what a user chooses ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        TraceOptions(leaf_types=(Stochastic,)),
        TraceOptions(leaf_paths=frozenset({"0"})),
    ],
    ids=["class", "path"],
)
def test_leaf_modules(options: TraceOptions) -> None:
    found = traced(nn.Sequential(Stochastic(), nn.ReLU()), torch.randn(2, 4), options=options)
    assert found.leaves == []
    called = [str(n.target) for n in found.graph_module.graph.nodes if n.op == "call_module"]
    assert called == ["0", "1"]


class OwnTracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, DropPath) or super().is_leaf_module(m, module_qualified_name)


@pytest.mark.parametrize("tracer", [OwnTracer, OwnTracer()], ids=["class", "object"])
def test_a_tracer_of_the_users_own(tracer: Any) -> None:
    found = traced(Stochastic(), torch.randn(2, 4), options=TraceOptions(tracer=tracer))
    assert found.leaves == []
    called = [str(n.target) for n in found.graph_module.graph.nodes if n.op == "call_module"]
    assert called == ["layer", "drop"]


def test_something_else_than_a_tracer_is_refused() -> None:
    with pytest.raises(OptionError, match=r"is not a torch\.fx\.Tracer"):
        traced(nn.ReLU(), torch.randn(2), options=TraceOptions(tracer=print))  # type: ignore[arg-type]


def test_a_structural_copy_shares_tensors_only() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    made = structural_copy(model)
    assert made[0] is not model[0]
    assert made[0].weight is model[0].weight
    assert made[1].running_mean is model[1].running_mean


def test_fresh_names_and_paths() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    assert fresh_name(model, "0") == "0_1"
    assert fresh_name(model, "new") == "new"
    assert inside("a.b", ["a"])
    assert inside("a", ["a"])
    assert not inside("ab", ["a"])
    assert inside("anything", [""])


class Constant(nn.Module):
    """A tensor written in the code."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - torch.tensor([1.0, 2.0, 3.0]))


def test_tensors_written_in_the_code_are_kept() -> None:
    model, x = Constant(), torch.randn(2, 3)
    made = traced(model, x).graph_module
    assert torch.equal(made(x), model(x))
    assert torch.equal(pickle.loads(pickle.dumps(made))(x), model(x))
    assert made.state_dict().keys() == model.state_dict().keys()
