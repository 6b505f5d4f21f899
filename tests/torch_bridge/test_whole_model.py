"""A prepared model as a whole: in two processes, in checkpoints, copied, pickled, compiled."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from tests.torch_bridge.models import ARCHITECTURES  # noqa: E402
from tests.torch_bridge.two_processes import in_two_processes  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, enable_quantization, quantizers  # noqa: E402

LSQ = {"algorithm": "lsq", "observer": "minmax"}


class Net(nn.Module):
    """A convolution with BatchNorm, a functional one, a residual sum, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, 1, 1)
        self.kernel = nn.Parameter(0.3 * torch.randn(8, 8, 1, 1))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        x = x + self.conv(nn.functional.conv2d(x, self.kernel))
        return self.head(x.mean((2, 3)))


def prepared(**how: Any) -> nn.Module:
    torch.manual_seed(0)
    q = prepare(Net(), "onnxruntime", (torch.zeros(1, 3, 8, 8),), weight=LSQ, activation=LSQ, **how)
    return q.eval()


def images(number: int = 8) -> Tensor:
    """Each one larger than the one before: processes that share them see different ranges."""
    sizes = torch.arange(1.0, number + 1).view(-1, 1, 1, 1)
    return sizes * torch.randn(number, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def train(model: nn.Module, x: Tensor, steps: int = 3) -> nn.Module:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return model.eval()


def ready(**how: Any) -> nn.Module:
    """Calibrated and quantizing."""
    q = prepared(**how)
    with torch.no_grad(), calibrating(q):
        q(images())
    enable_quantization(q)
    return q


def ranges(model: nn.Module) -> dict[str, Tensor]:
    return {
        f"{path}.{part}": getattr(quantizer, part).detach().clone()
        for path, quantizer in quantizers(model).items()
        for part in ("scale", "zero_point")
    }


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """The names under which both have the same values."""
    assert first.keys() == second.keys()
    return [name for name in first if torch.equal(first[name], second[name])]


# -- two processes --------------------------------------------------------------------------------


def trained_in_parallel(rank: int) -> list[dict[str, Tensor]]:
    return [*_calibrated_and_trained(rank, False), *_calibrated_and_trained(rank, True)]


def _calibrated_and_trained(rank: int, wrapped_before: bool) -> list[dict[str, Tensor]]:
    mine = images()[:5] if rank == 0 else images()[5:]
    q = prepared()
    model: nn.Module = DistributedDataParallel(q) if wrapped_before else q
    with torch.no_grad(), calibrating(model):
        model(mine)
    enable_quantization(model)
    found = ranges(q)
    train(model if wrapped_before else DistributedDataParallel(q), mine)
    return [found, {n: p.detach() for n, p in q.named_parameters()}]


def test_two_processes_have_the_same_ranges_and_learn_the_same(tmp_path: Any) -> None:
    first, second = in_two_processes(trained_in_parallel, tmp_path)
    alone = ready()
    found = ranges(alone)
    for calibrated, learned, others_calibrated, others_learned in (
        (*first[:2], *second[:2]),
        (*first[2:], *second[2:]),
    ):
        assert same(calibrated, others_calibrated) == list(found)
        assert same(calibrated, found) == list(found)
        assert same(learned, others_learned) == [n for n, _ in alone.named_parameters()]
        # Weights and scales alike have moved from where they were; but what stands before a
        # BatchNorm hardly feels how its input is scaled.
        started = {n: p.detach() for n, p in alone.named_parameters()}
        assert set(same(learned, started)) <= {"x_fake_quant.scale"}
        assert sum(name.endswith("fake_quant.scale") for name in learned) == len(quantizers(alone))


def test_one_process_alone_finds_other_ranges() -> None:
    half = prepared()
    with torch.no_grad(), calibrating(half):
        half(images()[:5])
    different = set(ranges(half)) - set(same(ranges(half), ranges(ready())))
    assert {name.rpartition(".")[0] for name in different} == {
        path for path in quantizers(half, "activations")
    }


# -- checkpoints and copies -----------------------------------------------------------------------


def outputs_and_step(model: nn.Module) -> list[Tensor]:
    """What it computes, and what its parameters are after a step: learning goes on as well."""
    x = images(4)
    before = model(x).detach()
    train(model, x, 1)
    return [before, *(p.detach().clone() for p in model.parameters())]


def through_file(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = prepared()
    other.load_state_dict(torch.load(file, weights_only=True))  # strict
    return other


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda q: pickle.loads(pickle.dumps(q)), through_file],
    ids=["deepcopy", "pickle", "state_dict"],
)
def test_a_copy_goes_on_as_the_original_does(copied: Any) -> None:
    q = train(ready(), images())
    other = copied(q)
    assert other is not q
    kept = {n: p.detach().clone() for n, p in other.named_parameters()}
    expected = outputs_and_step(q)
    assert same(kept, {n: p.detach() for n, p in other.named_parameters()}) == list(kept)
    got = outputs_and_step(other)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


PER_TENSOR = LSQ | {"per_channel": False}


def test_scales_of_tensors_become_scales_of_channels() -> None:
    """One scale per tensor is the same grid as that scale for every channel."""
    torch.manual_seed(0)
    coarse = prepare(
        Net(), "onnxruntime", (torch.zeros(1, 3, 8, 8),), weight=PER_TENSOR, activation=LSQ
    ).eval()
    with torch.no_grad(), calibrating(coarse):
        coarse(images())
    enable_quantization(coarse)
    for fine in (prepared(), ready()):  # before calibration and after it
        fine.load_state_dict(coarse.state_dict())
        weights = quantizers(fine, "weights")
        assert {q.scale.shape for q in weights.values()} == {(8,), (4,)}
        assert torch.equal(fine(images()), coarse(images()))
        train(fine, images())
        assert all(len(q.scale.unique()) > 1 for q in weights.values())
    with pytest.raises(RuntimeError, match=r"size mismatch for stem\.weight_fake_quant\.scale"):
        coarse.load_state_dict(fine.state_dict())


@pytest.mark.parametrize("name", ["resnet18", "transformer", "functional"])
def test_states_of_whole_networks_load(name: str) -> None:
    architecture = ARCHITECTURES[name]
    args, kwargs = architecture.inputs(2), architecture.kwargs(2)

    def made() -> nn.Module:
        return prepare(architecture.build(), "onnxruntime", args, kwargs).eval()

    q = made()
    with torch.no_grad(), calibrating(q):
        q(*args, **kwargs)
    enable_quantization(q)
    other = made()
    other.load_state_dict(q.state_dict())
    assert same(q.state_dict(), other.state_dict()) == list(q.state_dict())
    assert {p.quantizing for p in quantizers(other).values()} == {True}


# -- compilers ------------------------------------------------------------------------------------

PLANS_ONLY = "aot_eager_decomp_partition"


@pytest.mark.filterwarnings(
    "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning",
)
@pytest.mark.parametrize(
    ("training", "backend"),
    # The first plans what to keep for the backward pass as the last, but writes no code.
    [(True, PLANS_ONLY), (False, PLANS_ONLY), (True, "inductor")],
    ids=["train", "eval", "train-inductor"],
)
def test_a_compiled_model_computes_what_the_eager_one_does(training: bool, backend: str) -> None:
    # From calibration the largest values lie exactly on the border of the grid, where the last bit
    # decides whether they have a gradient, and compilers and CPUs round it differently.
    eager = train(ready(), images()).train(training)
    for quantizer in quantizers(eager).values():
        quantizer.scale.data.mul_(0.83)
    twin = copy.deepcopy(eager)
    compiled = torch.compile(twin, fullgraph=True, backend=backend)
    x = images()
    for model, call in ((eager, eager), (twin, compiled)):
        model.zero_grad()
        call(x).square().mean().backward()
    torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-4)
    pairs = zip(eager.named_parameters(), twin.parameters(), strict=True)
    for (name, expected), got in pairs:
        assert (expected.grad is not None) == expected.requires_grad, name
        if expected.grad is None:  # the scale of the input
            assert got.grad is None
            continue
        size = expected.grad.abs().max()
        torch.testing.assert_close(got.grad, expected.grad, rtol=1e-3, atol=float(1e-3 * size))
