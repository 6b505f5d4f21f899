"""What people do with a model in training: averages, copies, other types, hooks, frozen parts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import QParamsError  # noqa: E402
from tests.torch_bridge.fake_quant.quantizers import make, spec  # noqa: E402
from torch_bridge.fake_quant import ALGORITHMS  # noqa: E402
from torch_bridge.observers import OBSERVERS  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.kernel = nn.Parameter(0.3 * torch.randn(8, 8, 1, 1))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.conv2d(torch.relu(self.bn(self.stem(x))), self.kernel)
        y = x.flatten(2).transpose(1, 2)
        return self.head((y + self.attn(y, y, y, need_weights=False)[0]).mean(1))


X = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def prepared(**how: Any) -> nn.Module:
    torch.manual_seed(0)
    return tb.prepare(Net(), "onnxruntime", (X,), **how)


def calibrate(q: nn.Module, x: Tensor = X) -> nn.Module:
    with torch.no_grad(), tb.calibrating(q.eval()):
        q(x)
    tb.enable_quantization(q)
    return q


def step(q: nn.Module, x: Tensor = X) -> float:
    loss = q.train()(x).float().square().mean()
    q.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in q.parameters():
            if parameter.grad is not None:
                parameter -= 1e-3 * parameter.grad
    q.eval()
    return loss.item()


# -- averages and copies --------------------------------------------------------------------------

DECAY = 0.5


class ByHand:
    """The average that many training scripts write themselves."""

    def __init__(self, q: nn.Module) -> None:
        self.module = copy.deepcopy(q)

    @torch.no_grad()
    def update_parameters(self, q: nn.Module) -> None:
        for mine, its in zip(self.module.parameters(), q.parameters(), strict=True):
            mine.lerp_(its, 1 - DECAY)
        for mine, its in zip(self.module.buffers(), q.buffers(), strict=True):
            mine.copy_(its)


def averaged(q: nn.Module) -> AveragedModel:
    return AveragedModel(q, multi_avg_fn=get_ema_multi_avg_fn(DECAY))


def averaged_with_buffers(q: nn.Module) -> AveragedModel:
    return AveragedModel(q, multi_avg_fn=get_ema_multi_avg_fn(DECAY), use_buffers=True)


def scales(q: nn.Module) -> dict[str, Tensor]:
    return {path: each.scale.detach().clone() for path, each in tb.quantizers(q).items()}


@pytest.mark.parametrize("before", [False, True], ids=["after", "before"])
@pytest.mark.parametrize("kind", [averaged, averaged_with_buffers, ByHand])
def test_an_average_is_deployed(
    kind: Callable[[nn.Module], Any], before: bool, tmp_path: Path
) -> None:
    q = prepared()
    average = kind(q) if before else None
    calibrate(q)
    calibrated = scales(q)
    if average is None:
        average = kind(q)
    average.update_parameters(q)
    model: nn.Module = average.module
    if before and kind is ByHand:  # an average with what scales were without a range
        with pytest.warns(UserWarning, match="copy made before calibration start from the calib"):
            tb.enable_quantization(model)
    else:
        tb.enable_quantization(model)
    assert all(torch.equal(s, calibrated[path]) for path, s in scales(model).items())
    expected = dict(calibrated)
    for _ in range(2):
        step(q)
        average.update_parameters(q)
        expected = {p: torch.lerp(expected[p], s, 1 - DECAY) for p, s in scales(q).items()}
    torch.testing.assert_close(scales(model), expected, rtol=1e-6, atol=0)
    assert not torch.equal(expected["head.weight_fake_quant"], calibrated["head.weight_fake_quant"])
    made = tb.deploy(model if kind is ByHand else average, (X,), tmp_path)
    assert made.proven


def test_a_copy_without_buffers_has_no_range() -> None:
    q = prepared()
    early = copy.deepcopy(q)
    calibrate(q)
    with pytest.raises(QParamsError, match="no range yet") as caught:
        tb.enable_quantization(early)
    assert "needs the buffers of the calibrated model" in caught.value.fix
    early.load_state_dict(q.state_dict())
    assert torch.equal(early.eval()(X), q(X))


def test_copies_go_their_own_way() -> None:
    early = copy.deepcopy(prepared())
    q = calibrate(prepared())
    late = copy.deepcopy(q)
    expected = q(X)
    assert torch.equal(calibrate(early)(X), expected)
    step(late)
    assert torch.equal(q(X), expected)
    assert not torch.equal(late(X), expected)


@pytest.mark.parametrize("kind", [*OBSERVERS, "method"])
def test_calibration_changes_no_sizes(kind: str) -> None:
    """Averages copy tensors one by one, and DistributedDataParallel allocates for them."""
    how: Any = {"weight": {"observer": kind}, "activation": {"observer": kind}}
    if kind == "method":
        how = {"settings": [["*", {"method": "mse", "weight_method": "mse"}]]}
    q = prepared(**how)

    def sizes() -> dict[str, torch.Size]:
        return {n: t.shape for n, t in (*q.named_parameters(), *q.named_buffers())}

    before = sizes()
    calibrate(q)
    assert sizes() == before


# -- other types ----------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_scales_stay_float32(kind: torch.dtype, late: bool, tmp_path: Path) -> None:
    q = prepared()
    if late:
        calibrate(q)
    q.to(kind)
    x = X.to(kind)
    if not late:
        calibrate(q, x)
    for quantizer in tb.quantizers(q).values():
        floats = [t for t in (*quantizer.parameters(), quantizer.scale) if t.is_floating_point()]
        assert {t.dtype for t in floats} == {torch.float32}
    assert q.stem.weight.dtype is q(x).dtype is kind
    before, learned = scales(q), q.stem.weight.detach().clone()
    losses = [step(q, x) for _ in range(3)]
    assert losses[-1] < losses[0]
    assert not torch.equal(q.stem.weight, learned)
    assert any(not torch.equal(s, before[path]) for path, s in scales(q).items())
    made = tb.deploy(q, (x,), tmp_path)
    assert made.proven
    name = str(kind).removeprefix("torch.")
    assert made.proofs[-1].report.notes[0] == (
        f"the model computes in {name}; the file is its float32 form"
    )
    assert q.stem.weight.dtype is kind  # a copy was exported


def test_autocasting_reaches_every_parameter() -> None:
    q = calibrate(prepared())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = q.train()(X)
    assert y.dtype is torch.bfloat16
    y.float().square().mean().backward()
    assert {n for n, p in q.named_parameters() if p.grad is None} == {"x_fake_quant.scale"}
    assert {p.grad.dtype for p in q.parameters() if p.grad is not None} == {torch.float32}


def test_types_change_no_scale_and_no_result() -> None:
    q = calibrate(prepared())
    expected, before = q(X), scales(q)
    q.half().double().float()
    assert all(torch.equal(s, before[path]) for path, s in scales(q).items())
    torch.testing.assert_close(q(X), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_keeps_its_types(name: str) -> None:
    made = make(name, spec("int8"), 0.1)
    before = [(n, t.dtype) for n, t in (*made.named_parameters(), *made.named_buffers())]
    made.to(torch.bfloat16)
    assert [(n, t.dtype) for n, t in (*made.named_parameters(), *made.named_buffers())] == before


# -- parts of the model ---------------------------------------------------------------------------


def test_frozen_parts_of_attention_stay_frozen() -> None:
    net = Net()
    net.attn.in_proj_bias.requires_grad_(False)
    net.attn.out_proj.weight.requires_grad_(False)
    q = tb.prepare(net, "onnxruntime", (X,))
    frozen = {n for n, p in q.named_parameters() if not p.requires_grad and "fake" not in n}
    assert frozen == {
        *(f"attn.{part}_proj.bias" for part in "qkv"),
        "attn.out_proj.weight",
    }


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.attn = nn.MultiheadAttention(4, 1, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).flatten(2).transpose(1, 2)
        return self.head(self.attn(y, y, y)[0])


def hooked(calls: list[str]) -> nn.Module:
    torch.manual_seed(0)
    net = Nested().eval()

    def add(path: str, factor: float) -> None:
        def hook(module: nn.Module, args: Any, result: Any) -> Any:
            calls.append(path)
            return result if isinstance(result, tuple) else result * factor

        net.get_submodule(path).register_forward_hook(hook)

    for path, factor in (("", 3.0), ("body", 2.0), ("attn", 1.0), ("head", 5.0)):
        add(path, factor)
    return net


@pytest.mark.parametrize(
    ("capture", "called"),
    [
        ("fx", {"", "attn", "head"}),
        ("export", {"attn", "head"}),
        ("modules", {"", "body", "attn", "head"}),
    ],
)
def test_hooks_are_called_or_named(capture: Any, called: set[str], tmp_path: Path) -> None:
    calls: list[str] = []
    net = hooked(calls)
    expected = net(X)
    if capture == "modules":
        q = tb.prepare(net, "onnxruntime", (X,), capture=capture)
    else:
        lost = "'body'" if capture == "fx" else "the model and 'body'"
        with pytest.warns(UserWarning, match=f"hooks of {lost} are not called"):
            q = tb.prepare(net, "onnxruntime", (X,), capture=capture)
    calls.clear()
    torch.testing.assert_close(q(X), expected, rtol=1e-4, atol=1e-5)  # hooks compute as before
    assert set(calls) == called
    made = tb.deploy(calibrate(q), (X,), tmp_path)
    assert made.proven


def test_hooks_of_fused_layers_are_named() -> None:
    net = Nested()
    net.body[0].register_forward_hook(lambda *_: None)
    net.body[1].register_forward_pre_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="hooks of") as caught:
        tb.prepare(net, "onnxruntime", (X,))
    (text,) = (str(warning.message) for warning in caught)
    assert "hooks of 'body.0' see the result after its BatchNorm2d and ReLU" in text
    assert "hooks of the batch norm in 'body.0' run in training only" in text


def test_a_batch_of_zeros_is_named() -> None:
    with pytest.raises(QParamsError, match="quantizer 'x' observed only zeros"):
        calibrate(prepared(), torch.zeros_like(X))
    q = prepared()
    with torch.no_grad():
        q.kernel.zero_()
    with pytest.raises(QParamsError, match="quantizer 'conv2d' observed only zeros") as caught:
        calibrate(q)
    assert "exclude the layers that read it" in caught.value.fix


def test_excluded_layers_are_in_the_report() -> None:
    report = prepared(exclude=["head", nn.MultiheadAttention]).onnxq_report
    assert "float as asked: head (excluded); attn.q_proj (excluded)" in report.summary()
    assert list(report.problems()) == []
