"""Float checkpoints into prepared models and back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError, UnsupportedModelError  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES  # noqa: E402
from torch_bridge.nn.bn_state import fold_bn  # noqa: E402


class FrozenBatchNorm2d(nn.Module):
    """That of a detection library: buffers only."""

    def __init__(self, n: int) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, torch.rand(n) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        gain = self.weight * (self.running_var + 1e-5).rsqrt()
        return x * gain[:, None, None] + (self.bias - self.running_mean * gain)[:, None, None]


class Counted(nn.Linear):
    """A layer that saves a number beside its parameters."""

    count = 0

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.count)

    def set_extra_state(self, state: Tensor) -> None:
        self.count = int(state)


class Net(nn.Module):
    """A batch norm to fold, two attentions, a module with two names, a part that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.conv, self.frozen = nn.Conv2d(8, 8, 1), FrozenBatchNorm2d(8)
        self.twin = self.conv
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 2, batch_first=True, kdim=3, vdim=3, bias=False)
        self.auxiliary = nn.Linear(8, 2)
        self.head = Counted(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn(self.stem(x)))
        y = self.frozen(self.twin(y)).flatten(2).transpose(1, 2)
        y = y + self.attn(y, y, y, need_weights=False)[0]
        z = x.flatten(2).transpose(1, 2)
        return self.head((y + self.cross(y, z, z, need_weights=False)[0]).mean(1))


X = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def built(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net = Net().eval()
    net.head.count = seed
    return net


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return list(first) == list(second) and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("capture", ["fx", "export", "modules"])
def test_every_entry_goes_in_and_comes_out(capture: Any) -> None:
    net, other = built(), built(1)
    q = tb.prepare(net, "onnxruntime", (X,), capture=capture)
    assert same(tb.float_state(q), net.state_dict())
    tb.load_float_state(q, other.state_dict())
    assert same(tb.float_state(q), other.state_dict())
    torch.testing.assert_close(q(X), other(X), rtol=1e-4, atol=1e-5)
    again = built(2)
    again.load_state_dict(tb.float_state(q))
    assert torch.equal(again(X), other(X))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_known_networks(name: str) -> None:
    architecture = ARCHITECTURES[name]
    net = architecture.build()
    q = tb.prepare(net, "onnxruntime", architecture.inputs(2), architecture.kwargs(2))
    state = tb.float_state(q)
    assert same(state, net.state_dict())
    assert not q.onnxq_float_names.unused
    moved = {k: v + 1 if v.is_floating_point() else v for k, v in state.items()}
    tb.load_float_state(q, moved)
    assert same(tb.float_state(q), moved)


def ready(net: nn.Module) -> nn.Module:
    q = tb.prepare(net, "onnxruntime", (X,))
    with torch.no_grad(), tb.calibrating(q):
        q(X)
    tb.enable_quantization(q)
    return q


def test_what_training_learned_comes_out_and_ranges_stay() -> None:
    net = built()
    q = ready(net)
    q.train()(X).square().mean().backward()
    torch.optim.SGD(q.parameters(), 0.1).step()
    trained = tb.float_state(copy.deepcopy(q))
    assert not torch.equal(trained["attn.in_proj_weight"], net.attn.in_proj_weight)
    assert not torch.equal(trained["bn.running_mean"], net.bn.running_mean)
    assert torch.equal(trained["auxiliary.weight"], net.auxiliary.weight)
    with pytest.warns(UserWarning, match="keep the ranges of the weights .* calibrate again"):
        tb.load_float_state(q, trained)
    assert same(tb.float_state(torch.nn.DataParallel(q)), trained)


def test_names_that_do_not_match() -> None:
    net = built()
    q, state = tb.prepare(net, "onnxruntime", (X,)), net.state_dict()
    with pytest.raises(
        OptionError, match=r"3 names are missing: 'head\.weight', 'head\.bias'"
    ) as e:
        tb.load_float_state(q, {k: v for k, v in state.items() if not k.startswith("head")})
    assert "strict=False" in e.value.fix
    renamed = {k.replace("stem", "stm"): v for k, v in state.items()}
    with pytest.raises(OptionError, match=r"not those of the float model: 'stm\.weight'") as e:
        tb.load_float_state(q, renamed)
    assert "'stem.weight'" in e.value.fix
    with pytest.raises(OptionError, match=r"'module\.stem\.weight'") as e:
        tb.load_float_state(q, {f"module.{k}": v for k, v in state.items()})
    assert "removeprefix('module.')" in e.value.fix
    before = tb.float_state(q)["stem.weight"].clone()
    tb.load_float_state(q, renamed, strict=False)
    assert torch.equal(tb.float_state(q)["stem.weight"], before)
    wide = state | {"attn.in_proj_bias": torch.zeros(25)}
    with pytest.raises(OptionError, match=r"'attn\.in_proj_bias' has shape \[25\], .* \[24\]"):
        tb.load_float_state(q, wide)


def test_models_that_have_no_float_state() -> None:
    with pytest.raises(UnsupportedModelError, match="Net was not prepared"):
        tb.float_state(built())
    q = fold_bn(ready(built()))
    with pytest.raises(UnsupportedModelError, match=r"which was 'bn\.weight', is not in the model"):
        tb.float_state(q)
