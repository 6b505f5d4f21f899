"""Writes into parts of tensors: prepared, trained and exported as the model computes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402


def halves(x: Tensor, y: Tensor) -> Tensor:
    y[:, 0].mul_(2)
    y[:, -1] = 1.5
    return y


def nested(x: Tensor, y: Tensor) -> Tensor:
    y[1:, 2:4] = x[1:, :2]
    y[..., 1].add_(1).sigmoid_()
    return y


def stepped(x: Tensor, y: Tensor) -> Tensor:
    y[:, 0::2] = x[:, :3]
    y[:, 1::2] = 0
    return y


def turned(x: Tensor, y: Tensor) -> Tensor:
    y.t()[2].copy_(x[:, 0])
    y.view(-1)[:3].clamp_(max=0.0)
    return y


def views_made_before(x: Tensor, y: Tensor) -> Tensor:
    first, last = y[:, :3], y[:, 3:]
    y[:, 1:5] -= 1
    return torch.cat([first * 2, last], 1)


def shared_part(x: Tensor, y: Tensor) -> Tensor:
    part = y[:, 2:]
    written = part.mul_(3)
    written[:, 0] = 4
    return y + part.sum(1, keepdim=True)


def mask(x: Tensor, y: Tensor) -> Tensor:
    regions = x.new_zeros((6, 6))
    for count, (start, stop) in enumerate([(0, -3), (-3, -1), (-1, None)]):
        regions[start:stop, start:stop] = count
    return y @ regions.masked_fill(regions != 0, -2.0)


def typed(x: Tensor, y: Tensor) -> Tensor:
    places = torch.zeros(6, dtype=torch.long)
    places[2:4] = 5
    y[:, 1] += x[:, 1] > 0
    return y[:, places]


WRITES = (halves, nested, stepped, turned, views_made_before, shared_part, mask, typed)


class Writing(nn.Module):
    def __init__(self, write: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.head = nn.Linear(6, 6)
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 100:  # FX cannot trace it
            raise ValueError("too many rows")
        return self.head(self.write(x, self.layer(x)))


@pytest.mark.parametrize("write", WRITES, ids=lambda w: w.__name__)
def test_a_write_is_a_function_and_trains_alike(write: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    model, x = Writing(write), torch.randn(4, 6)
    q = tb.prepare(model, "onnxruntime", (x,))
    names = {str(getattr(n.target, "__name__", n.target)) for n in q.graph.nodes}
    assert not {n for n in names if n.endswith("_") and not n.startswith("_")}
    for rows in (4, 7):
        given = torch.randn(rows, 6)
        mine, its = q(given), model(given)
        torch.testing.assert_close(mine, its)
        for net, result in ((q, mine), (model, its)):
            net.zero_grad()
            result.square().sum().backward()
        for name, parameter in model.named_parameters():
            other = q.get_parameter(name)
            torch.testing.assert_close(other.grad, parameter.grad)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("write", [halves, nested, stepped, mask], ids=lambda w: w.__name__)
def test_a_write_is_deployed(write: Callable[..., Tensor], exporter: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6)
    q = tb.prepare(Writing(write), "onnxruntime", (x,))
    with tb.calibrating(q):
        q(x)
    tb.enable_quantization(q)
    done = tb.deploy(q.eval(), (x,), tmp_path, exporter=exporter)  # type: ignore[arg-type]
    assert done.proven


def test_what_others_see_is_still_written_into() -> None:
    class Notes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)
            self.register_buffer("seen", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.seen[:1].add_(1)
            x[:, 0].mul_(2)
            return self.layer(x)

    model, x = Notes(), torch.randn(4, 6)
    q = tb.prepare(model, "onnxruntime", (x,), capture="export")
    given = torch.ones(4, 6)
    q(given)
    assert q.seen.tolist() == [1.0, 0.0]
    assert given[0].tolist() == [2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
