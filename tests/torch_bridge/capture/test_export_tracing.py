"""Capture by torch.export: the graph that FX would have made, of code that FX cannot trace."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from tests.torch_bridge.models import ResNet18  # noqa: E402
from tests.zoo.hand_written import MODELS, Answer, Branches, Configured, DictIn  # noqa: E402
from torch_bridge.capture.example_call import ExampleCall  # noqa: E402
from torch_bridge.capture.export_tracing import export_trace  # noqa: E402
from torch_bridge.capture.flat_call import leaves  # noqa: E402
from torch_bridge.capture.tracing import Traced, TraceOptions, trace  # noqa: E402


def exported(model: nn.Module, *args: Any, **kwargs: Any) -> Traced:
    options = kwargs.pop("options", TraceOptions())
    call = ExampleCall(model, args, kwargs)
    return export_trace(model, call.with_two_rows(model), options)


def assert_same(made: nn.Module, model: nn.Module, *args: Any, **kwargs: Any) -> None:
    with torch.no_grad():
        wanted = list(leaves(copy.deepcopy(model).eval()(*args, **kwargs)))
        found = list(leaves(made.eval()(*args, **kwargs)))
    assert [path for path, _ in found] == [path for path, _ in wanted]
    for (_, a), (_, b) in zip(wanted, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_computes_the_same_and_trains(name: str) -> None:
    model, args, kwargs = MODELS[name]()
    found = exported(model, *args, **kwargs)
    made = found.graph_module
    assert made is not None
    assert found.leaves == []
    assert list(found.cautions) == []
    assert made.state_dict().keys() <= model.state_dict().keys()
    assert {id(p) for p in made.parameters()} == {id(p) for p in model.parameters()}
    assert_same(made, model, *args, **kwargs)
    results = [t for _, t in leaves(made.train()(*args, **kwargs)) if t.is_floating_point()]
    sum(t.square().mean() for t in results).backward()
    assert all(p.grad is not None for p in made.parameters())


@pytest.mark.parametrize("name", ["dict inputs", "config", "constants"])
def test_a_copy_and_a_pickle_compute_the_same(name: str) -> None:
    model, args, kwargs = MODELS[name]()
    made = exported(model, *args, **kwargs).graph_module
    assert_same(copy.deepcopy(made), model, *args, **kwargs)
    assert_same(pickle.loads(pickle.dumps(made)), model, *args, **kwargs)


def test_modules_and_parameters_are_those_of_the_model() -> None:
    model = ResNet18()
    x = torch.randn(2, 3, 32, 32)
    made = exported(model, x).graph_module
    by_fx = trace(model, ExampleCall(model, (x,), None), TraceOptions()).graph_module
    calls = [[str(n.target) for n in g.graph.nodes if n.op == "call_module"] for g in (made, by_fx)]
    assert [c for c in calls[0] if c != "onnxq_sizes"] == calls[1]
    assert made.get_submodule("conv1").weight is model.conv1.weight
    names = [[n.name for n in g.graph.nodes if "add" in n.name] for g in (made, by_fx)]
    assert names[0] == names[1]


def test_changes_in_place_reach_those_who_see_them() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Any:
            if x.dim() > 2:
                return x
            y = self.layer(x)
            y += 1
            kept = y.view(-1)
            y.mul_(2)
            z = torch.tanh(x)
            z.add_(1)
            self.count += 1
            return y, kept, z

    model, x = InPlace(), torch.randn(2, 4)
    made = exported(model, x).graph_module
    assert_same(made, model, x)
    counted = made.count.item()
    made(x)
    assert made.count.item() == counted + 1
    methods = [n.target for n in made.graph.nodes if n.op == "call_method"]
    assert methods.count("mul_") == 1, "kept sees the change"
    assert "add_" not in [n.target for n in made.graph.nodes if n.name.startswith("tanh")]


# -- sizes -----------------------------------------------------------------------------------------


def test_other_batches_of_images_are_taken_and_other_sizes_refused() -> None:
    model = Branches()
    made = exported(model, torch.randn(1, 3, 9, 8)).graph_module
    assert_same(made, model, torch.randn(5, 3, 9, 8))
    with pytest.raises(OptionError, match=r"captured for inputs with x\.shape\[2\] == 9; got"):
        made(torch.randn(5, 3, 10, 8))


def test_a_decision_on_a_size_is_checked() -> None:
    class Even(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.shape[1] % 2 else x

    made = exported(Even(), torch.randn(2, 5)).graph_module
    assert_same(made, Even(), torch.randn(3, 7))
    with pytest.raises(OptionError, match=r"x\.shape\[1\] % 2"):
        made(torch.randn(3, 8))


def test_sizes_that_are_equal_in_the_example_may_differ() -> None:
    class Rows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b, c = x.shape
            return x.reshape(a, b * c) if c > 1 else x

    made = exported(Rows(), torch.randn(4, 4, 4)).graph_module
    assert made(torch.randn(2, 3, 5)).shape == (2, 15)


def test_sequences_of_another_length() -> None:
    model, args, kwargs = MODELS["config"]()
    made = exported(model, *args, **kwargs).graph_module
    longer = {"tokens": torch.randint(0, 30, (3, 9)), "mask": torch.ones(3, 9, dtype=torch.long)}
    assert_same(made, model, **longer)


# -- modes -----------------------------------------------------------------------------------------


class Modes(nn.Module):
    """Dropout as a function, in attention, and as a module; a branch on a size stops FX."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 100:
            return x
        y = F.dropout(self.layer(x), 0.5, self.training)
        return F.scaled_dot_product_attention(y, y, y, dropout_p=0.3 if self.training else 0.0)


def test_functions_follow_the_mode() -> None:
    model, x = Modes(), torch.randn(2, 5, 8)
    found = exported(model, x)
    assert list(found.cautions) == []
    made = found.graph_module
    assert_same(made, model, x)
    assert torch.equal(made(x), made(x))
    torch.manual_seed(0)
    wanted = model.train()(x)
    torch.manual_seed(0)
    assert torch.equal(made.train()(x), wanted)


class DropPath(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.bernoulli(torch.full_like(x, 0.5)) if self.training else x


class Stochastic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.layer(x)) if x.shape[0] < 100 else x


def test_a_module_that_works_in_training_only_is_one_node() -> None:
    found = exported(Stochastic(), torch.randn(2, 4))
    made, x = found.graph_module, torch.randn(64, 4)
    assert found.leaves == []
    assert not torch.equal(made.train()(x), made(x))
    assert torch.equal(made.eval()(x), made(x))


class Auxiliary(nn.Module):
    """Returns more in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        y = self.layer(x)
        return (y, y.mean()) if self.training else y


def test_a_root_that_differs_has_the_graph_of_evaluation() -> None:
    model, x = Auxiliary(), torch.randn(2, 4)
    found = exported(model, x)
    assert "the model itself: its code differs" in found.cautions[0]
    assert_same(found.graph_module, model, x)
    assert isinstance(found.graph_module.train()(x), Tensor)


# -- arguments and results -------------------------------------------------------------------------


def test_dicts_in_and_dataclasses_out() -> None:
    model, args, kwargs = MODELS["dict inputs"]()
    made = exported(model, *args, **kwargs).graph_module
    result = made(*args, **kwargs)
    assert isinstance(result, Answer)
    assert result.name == "answer"
    batch = {"text": torch.randn(5, 8), "image": torch.randn(5, 4)}
    assert_same(made, model, batch, full=True)
    with pytest.raises(OptionError, match="text"):
        made({"text": batch["text"]}, full=True)
    with pytest.raises(OptionError, match=r"scale=2\.0"):
        made(batch, 3.0, full=True)


def test_arguments_may_be_left_out_as_in_the_example() -> None:
    model, args, kwargs = MODELS["config"]()
    assert isinstance(model, Configured)
    made = exported(model, *args, **kwargs).graph_module
    assert_same(made, model, kwargs["tokens"], kwargs["mask"])
    assert made(**kwargs)["states"] is not None
    with pytest.raises(OptionError, match="return_all"):
        made(**kwargs, return_all=False)
    with pytest.raises(OptionError, match="kwargs"):
        made(**kwargs, other=1)


def test_an_object_that_is_not_made_of_tensors_is_not_returned() -> None:
    class Cache:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> dict[str, Any]:
            y = self.layer(x)
            return {"y": y, "cache": Cache(y)}

    found = exported(Caching(), torch.randn(2, 4))
    assert "'cache' is not returned" in found.cautions[0]
    assert found.graph_module(torch.randn(2, 4))["cache"] is None


# -- where it ends ---------------------------------------------------------------------------------


class ByValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else x


def test_a_branch_on_a_value_has_no_graph() -> None:
    found = exported(nn.Sequential(ByValue(), nn.Linear(4, 4)), torch.randn(2, 4))
    assert found.graph_module is None
    assert found.leaves[0].path == ""


def test_the_model_is_not_changed() -> None:
    model, args, kwargs = MODELS["config"]()
    before = {name: set(vars(m)) for name, m in model.named_modules()}
    exported(model, *args, **kwargs)
    assert {name: set(vars(m)) for name, m in model.named_modules()} == before
    assert isinstance(DictIn().forward({"text": torch.randn(1, 8)}), Answer)


class Announced(nn.Module):
    """Branches on a value, which torch.export cannot follow, and says something before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        print("the user's own words", file=sys.stderr)
        y = self.layer(x)
        return y if float(y.sum()) > 1e9 else -y


@pytest.mark.filterwarnings("ignore:prepare for")
def test_what_torch_prints_about_an_attempt_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    report = tb.prepare(Announced(), "onnxruntime", torch.randn(2, 8)).onnxq_report
    assert "GuardOnDataDependentSymNode" in report.capture_reason
    assert set(capfd.readouterr().err.split("\n")) == {"the user's own words", ""}
