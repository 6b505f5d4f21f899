"""The operators with other weights equal the layers that own them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from tests.torch_bridge.nn.layers import CASES, Case, Off  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.nn.layer_op import why_not_quantizable  # noqa: E402


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_operator_is_its_layers(case: Case) -> None:
    ours, other = case.qat.from_float(case.make(), Off()), case.make()
    x = case.input()
    assert torch.equal(ours.apply_weights(x, other.weight, other.bias), other(x))


@pytest.mark.parametrize("size", [(9, 10), (10, 9), (2, 6, 10, 10)])
@pytest.mark.parametrize("groups", [1, 2])
def test_output_size(size: tuple[int, ...], groups: int) -> None:
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=groups)
    x = torch.randn(2, 4, 5, 5)
    expected = layer(x, list(size))
    assert expected.shape[-2:] == size[-2:]
    assert torch.equal(qnn.QatConvTranspose2d.from_float(layer, Off())(x, size), expected)
    fused = qnn.FusedConvTranspose2d.from_float(layer, nn.BatchNorm2d(6, momentum=0.0))
    ours = qnn.FusedQatConvTranspose2d.from_float(fused, Off())
    for mode in (True, False):
        y = fused.train(mode)(x, output_size=size)
        torch.testing.assert_close(ours.train(mode)(x, output_size=size), y)


@pytest.mark.parametrize(
    ("size", "message"),
    [([11, 9], r"from \[9, 9\] to \[10, 10\]"), ([9], "must have 2 or 4 elements")],
)
def test_impossible_output_sizes(size: list[int], message: str) -> None:
    ours = qnn.QatConvTranspose2d(4, 6, 3, stride=2, padding=1, weight_quantizer=Off())
    with pytest.raises(ValueError, match=message):
        ours(torch.randn(2, 4, 5, 5), size)


def test_transposed_convolutions_pad_with_zeros_only() -> None:
    with pytest.raises(ValueError, match='Only "zeros" padding mode'):
        qnn.QatConvTranspose2d(4, 6, 3, padding_mode="circular", weight_quantizer=Off())


def test_embedding_looks_up_quantized_rows() -> None:
    layer = nn.Embedding(7, 4, padding_idx=2, scale_grad_by_freq=True)
    ours = qnn.QatEmbedding.from_float(layer, Off())
    index = torch.tensor([[0, 2, 2], [6, 6, 6]])
    assert torch.equal(ours(index), layer(index))
    grads = []
    for module in (layer, ours):
        layer.weight.grad = None
        module(index).square().sum().backward()
        grads.append(layer.weight.grad)
    assert torch.equal(*grads)
    assert not grads[0][2].any(), "the padding row learns nothing"


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Embedding(5, 3, max_norm=1.0), "max_norm"),
        (nn.Embedding(5, 3, sparse=True), "sparse"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "parametrization"),
    ],
)
def test_what_cannot_be_quantized_is_refused(layer: nn.Module, reason: str) -> None:
    assert reason in why_not_quantizable(layer)
    qat = qnn.QatEmbedding if isinstance(layer, nn.Embedding) else qnn.QatLinear
    with pytest.raises(UnsupportedModelError, match=reason):
        qat.from_float(layer, Off())
