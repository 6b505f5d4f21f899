"""Operators of torch.export as functions of torch: the same numbers, and known kinds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torch_bridge.capture.example_call import ExampleCall  # noqa: E402
from torch_bridge.capture.export_tracing import export_trace  # noqa: E402
from torch_bridge.capture.tracing import TraceOptions  # noqa: E402
from torch_bridge.capture.value_types import mark_values  # noqa: E402
from torch_bridge.insertion.op_kinds import kind_of  # noqa: E402

WEIGHT = nn.Parameter(torch.randn(6, 4))
CASES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "slice": (lambda x: x[:, 1:3], "Slice"),
    "every second": (lambda x: x[..., ::2], "Slice"),
    "index": (lambda x: x[:, torch.tensor([0, 2])], "Slice"),
    "1 - x": (lambda x: 1 - x, "Sub"),
    "rsub": (lambda x: torch.rsub(x, 1, alpha=3), "Sub"),
    "view": (lambda x: x.view(x.shape[0], -1), "Reshape"),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), "Resize"),
    "bilinear": (lambda x: F.interpolate(x, (6, 7), mode="bilinear"), "Resize"),
    "relu6": (F.relu6, "Clip"),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), "Gelu"),
    "silu": (F.silu, "Swish"),
    "softmax": (lambda x: x.softmax(-1), "Softmax"),
    "max pool": (lambda x: F.max_pool2d(x, 2), "MaxPool"),
    "average pool": (lambda x: F.avg_pool2d(x, 2), "AveragePool"),
    "global pool": (lambda x: F.adaptive_avg_pool2d(x, 1), "GlobalAveragePool"),
    "layer norm": (lambda x: F.layer_norm(x, (4,)), "LayerNormalization"),
    "pad": (lambda x: F.pad(x, (1, 0)), "Pad"),
    "half": (lambda x: x.to(torch.float64), "Identity"),
    "einsum": (lambda x: torch.einsum("abcd,abed->abce", x, x), "MatMul"),
    "linear": (lambda x: F.linear(x, WEIGHT.detach()), "Linear"),
    "embedding": (
        lambda x: F.embedding((x > 0).long().flatten(), WEIGHT.detach(), 0),
        "Embedding",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_numbers_and_a_kind(name: str) -> None:
    compute, kind = CASES[name]

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return compute(x) if x.dim() else x

    model, x = Model(), torch.randn(2, 4, 4, 4)
    call = ExampleCall(model, (x,), None)
    made = export_trace(model, call, TraceOptions()).graph_module
    assert made is not None
    torch.testing.assert_close(made(x), model(x))
    mark_values(made, call)
    modules = dict(made.named_modules())
    assert kind in {kind_of(node, modules) for node in made.graph.nodes}
