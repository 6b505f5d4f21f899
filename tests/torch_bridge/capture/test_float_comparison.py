"""A prepared model is compared with the float one, and a layer that differs is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import UnsupportedModelError  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.capture.float_comparison import Difference  # noqa: E402
from torch_bridge.capture.value_types import SAMPLE  # noqa: E402

CONV = tb.Link("Conv2d", (nn.Conv2d,))
LEAKY = tb.Link("LeakyReLU", (nn.LeakyReLU,), functions=(F.leaky_relu,))
X = (torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)


class Forgetful(qnn.FusedConv2d):
    """Loses the slope."""

    @classmethod
    def from_float(cls, layer: nn.Module, *others: nn.Module) -> Forgetful:
        return super().from_float(layer, nn.LeakyReLU())


class Shrinking(qnn.QatConv2d):
    """Computes something else in its quantized form."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 0.99


class Cropping(qnn.QatConv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input)[..., 1:]


class Failing(qnn.QatConv2d):
    def forward(self, input: Tensor) -> Tensor:
        raise TypeError("no")


class Mute(qnn.QatConv2d):
    """Forgets to return what it computes."""

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        super().apply_weights(x, weight, bias)


FORGETFUL = tb.Pattern("forgetful", (CONV, LEAKY), fused=Forgetful, qat=qnn.FusedQatConv2d)


def layer(qat: type[nn.Module]) -> tb.Pattern:
    return tb.Pattern("mine", (CONV,), qat=qat)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 4, 1)
        self.act = nn.LeakyReLU(0.2)
        self.c = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.act(self.b(F.relu(self.bn(self.a(x))))))


# -- wrong layers ---------------------------------------------------------------------------------


def test_the_first_wrong_fused_layer_is_named() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        tb.prepare(Net(), "tensorrt", X, patterns=[FORGETFUL])
    what, fix = caught.value.what, caught.value.fix
    assert what.startswith("'b' (a FusedQatConv2d, made by the pattern 'forgetful') computes")
    assert "instead of" in what
    assert "of the largest value" in what
    assert "leave it out of patterns=" in fix
    assert "PATTERNS.remove('forgetful')" in fix


def test_the_error_is_the_measured_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1)).eval()
    with pytest.raises(UnsupportedModelError, match=r"off by 0\.01 of the largest value"):
        tb.prepare(model, "tensorrt", X, patterns=[layer(Shrinking)])


@pytest.mark.parametrize("capture", ["fx", "export", "modules"])
def test_however_it_is_captured(capture: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Tanh(), nn.Conv2d(4, 4, 1))
    with pytest.raises(UnsupportedModelError, match=r"'0' .a Shrinking.*'mine'"):
        tb.prepare(model, "tensorrt", X, patterns=[layer(Shrinking)], capture=capture)


@pytest.mark.parametrize(
    ("kind", "what"),
    [(Cropping, "gives a tensor of another shape"), (Failing, "fails: TypeError: no")],
)
def test_other_faults_are_told_in_words(kind: type[nn.Module], what: str) -> None:
    with pytest.raises(UnsupportedModelError, match=what):
        tb.prepare(nn.Sequential(nn.Conv2d(3, 4, 1)), "tensorrt", X, patterns=[layer(kind)])


@pytest.mark.parametrize("capture", ["fx", "export", "modules"])
def test_a_layer_that_returns_nothing_is_told(capture: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1))
    with pytest.raises(UnsupportedModelError, match=r"'0' .a Mute.* returns None"):
        tb.prepare(model, "tensorrt", X, patterns=[layer(Mute)], capture=capture)


@pytest.mark.filterwarnings("ignore:prepare for")
def test_inside_a_module_that_is_not_traced() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) if float(x.sum()) > -1e9 else x

    model = nn.Sequential(Branching(), nn.Conv2d(3, 4, 1))
    with pytest.raises(UnsupportedModelError, match=r"'0' .a Shrinking, made by .* 'mine'"):
        tb.prepare(model, "tensorrt", X, patterns=[layer(Shrinking)])


# -- right layers ---------------------------------------------------------------------------------


@dataclass
class Record:
    y: Tensor
    parts: dict[str, Any]


class Dropping(nn.Module):
    """Trains with dropout, and returns a record of tuples and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Any:
        y = self.drop(self.net(x))
        return Record(F.dropout(y, 0.5, self.training), {"many": (y, None, [y + 1])})


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x + torch.randn_like(x))


class Counting(nn.Module):
    """Keeps a state, and writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.conv(x.mul_(2)) + self.calls


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).masked_fill(x[:, :1] > 0, float("-inf")).softmax(-1)


@pytest.mark.parametrize("kind", [Dropping, Noisy, Counting, Masked])
@pytest.mark.parametrize("capture", ["fx", "export", "modules"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.filterwarnings("ignore:prepare for")
def test_right_models_pass(kind: Callable[[], nn.Module], capture: str, training: bool) -> None:
    if capture == "fx" and kind in (Dropping, Counting):
        pytest.skip("FX can neither return a dataclass nor write into a buffer")
    model = kind().train(training)
    given = X[0].clone()
    random = torch.get_rng_state()
    q = tb.prepare(model, "tensorrt", (given,), capture=capture)
    assert q.training is training
    assert not any("could not be compared" in each for each in q.onnxq_report.cautions)
    # Nothing that a run changes is left changed.
    assert torch.equal(given, X[0])
    assert torch.equal(torch.get_rng_state(), random)
    assert all(float(buffer) == 0 for name, buffer in q.named_buffers() if name == "calls")
    if capture != "modules":
        assert not any(SAMPLE in node.meta for node in q.graph.nodes)


class Stateful(nn.Module):
    """Returns something else in every call, by a state that no graph shows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.calls = [0]

    def __deepcopy__(self, memo: dict[int, Any]) -> Stateful:
        made = Stateful()
        made.calls = self.calls
        made.conv = copy.deepcopy(self.conv, memo)
        return made

    def forward(self, x: Tensor) -> Tensor:
        self.calls[0] += 1
        return self.conv(x * self.calls[0])


@pytest.mark.parametrize("capture", ["fx", "modules"])
def test_what_differs_from_run_to_run_is_told_and_no_error(capture: str) -> None:
    model = nn.Sequential(Stateful(), nn.Conv2d(4, 4, 1))
    with pytest.warns(UserWarning, match="differs from run to run"):
        tb.prepare(model, "tensorrt", X, leaf_modules=[Stateful], capture=capture)


def test_rounding_that_grows_is_no_difference() -> None:
    """A deep network without normalisation multiplies the error of its first layer."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(30):
        conv = nn.Conv2d(3, 3, 1)
        nn.init.normal_(conv.weight, std=3.0)
        bn = nn.BatchNorm2d(3)
        bn.running_mean.normal_(std=30)
        bn.running_var.uniform_(1e-4, 1)
        layers += [conv, bn, nn.Tanh()]
    model = nn.Sequential(*layers).eval()
    tb.prepare(model, "tensorrt", X)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_compared_by_their_resolution(dtype: torch.dtype) -> None:
    model = Net().to(dtype).eval()
    tb.prepare(model, "tensorrt", (X[0].to(dtype),))
    with pytest.raises(UnsupportedModelError, match="forgetful"):
        tb.prepare(model, "tensorrt", (X[0].to(dtype),), patterns=[FORGETFUL])


# -- the measure ----------------------------------------------------------------------------------


def test_the_error_is_relative_to_the_largest_finite_value() -> None:
    inf, nan = torch.inf, torch.nan
    found = Difference.of(torch.tensor([1.0, inf, nan, 3.5]), torch.tensor([1.0, inf, nan, 4.0]))
    assert found == Difference(0.125, 3.5, 4.0)
    assert Difference.of(torch.zeros(3), torch.zeros(3)).error == 0
    assert Difference.of(torch.ones(3), torch.zeros(3)).error == 1.0  # absolute, beside zeros
    assert Difference.of(torch.tensor([nan]), torch.tensor([1.0])).error == inf
    assert Difference.of(torch.zeros(0), torch.zeros(0)).error == 0
    assert Difference.of(torch.zeros(2), torch.zeros(3)).error == inf


def test_an_error_counts_only_above_that_of_the_inputs() -> None:
    wrong = Difference(0.01, 0.0, 0.0)
    assert wrong.exceeds(0.0, torch.float32)
    assert not wrong.exceeds(0.001, torch.float32)
    assert not wrong.exceeds(0.0, torch.bfloat16)
