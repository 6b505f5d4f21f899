"""The example call: bound by name, run once, and what of it is fixed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge.capture.example_call import ExampleCall  # noqa: E402


class Model(nn.Module):
    def forward(
        self,
        x: Tensor,
        parts: list[Tensor] | None = None,
        times: int = 2,
        *,
        mode: str = "sum",
    ) -> Tensor:
        return x * times


X = torch.ones(2)


def test_a_single_tensor_is_the_only_argument() -> None:
    assert ExampleCall(Model(), X, None).args == (X,)


def test_what_is_fixed() -> None:
    call = ExampleCall(Model(), (X,), None)
    assert call.concrete_args() == {"parts": None, "mode": "sum"}
    assert call.concrete_args(numbers=True) == {"parts": None, "times": 2, "mode": "sum"}
    assert not call.has_containers


def test_containers_are_taken_apart_on_demand() -> None:
    call = ExampleCall(Model(), (X, [X, X, None]), {"mode": "mean"})
    assert call.has_containers
    assert call.concrete_args() == {"mode": "mean"}
    fixed = call.concrete_args(containers=True)
    assert fixed == {"parts": [fx.PH, fx.PH, None], "mode": "mean"}


def test_calls_that_do_not_fit() -> None:
    with pytest.raises(OptionError, match=r"do not fit Model\.forward"):
        ExampleCall(Model(), (), {"y": X})


def test_the_run_is_in_eval_mode_and_leaves_modes_alone() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm1d(2)).train()
    model[1].eval()
    x = torch.randn(4, 2)
    call = ExampleCall(model, (x,), None)
    torch.testing.assert_close(call.run(model), x, rtol=1e-4, atol=1e-4)
    assert [m.training for m in model.modules()] == [True, True, False]
    with pytest.raises(OptionError, match="Sequential fails on the example inputs: "):
        ExampleCall(model, (torch.zeros(4, 3),), None).run(model)
