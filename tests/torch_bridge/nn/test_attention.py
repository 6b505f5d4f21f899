"""Attention taken apart computes what torch's does."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from torch_bridge.nn.attention import ActivationProduct, Attention, expand_attention  # noqa: E402

MASKS = {
    "none": {},
    "padding": {"key_padding_mask": torch.tensor([[False, False, True], [False, True, True]])},
    "causal": {"attn_mask": torch.ones(3, 3).triu(1).bool()},
    "additive": {"attn_mask": torch.randn(3, 3)},
    "per head": {"attn_mask": torch.randn(4, 3, 3)},
    "both": {
        "attn_mask": torch.ones(3, 3).triu(1).bool(),
        "key_padding_mask": torch.tensor([[False, False, True], [False, True, True]]),
    },
    "all weights": {"average_attn_weights": False},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", MASKS)
def test_results_and_weights(case: str, bias: bool, batch_first: bool) -> None:
    source = nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first).eval()
    made = Attention(source)
    assert not made.training
    shape = (2, 3, 8) if batch_first else (3, 2, 8)
    q, k, v = (torch.randn(shape) for _ in range(3))
    for expected, got in zip(
        source(q, k, v, **MASKS[case]), made(q, k, v, **MASKS[case]), strict=True
    ):
        torch.testing.assert_close(got, expected)
    assert made(q, k, v, need_weights=False)[1] is None


def test_other_widths_of_keys_and_values_and_no_batch() -> None:
    source = nn.MultiheadAttention(8, 2, kdim=6, vdim=5).eval()
    args = torch.randn(3, 8), torch.randn(4, 6), torch.randn(4, 5)
    torch.testing.assert_close(Attention(source)(*args), source(*args))


def test_every_place_is_replaced_once() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, notes = expand_attention(nn.ModuleList([layer, layer.self_attn]))
    assert notes == []
    assert model[0].self_attn is model[1]
    assert isinstance(model[1], Attention)
    extra, notes = expand_attention(
        nn.ModuleList([nn.MultiheadAttention(8, 2, add_zero_attn=True)])
    )
    assert type(extra[0]) is nn.MultiheadAttention
    assert notes == ["0: left float, extra keys (bias_k, add_zero_attn)"]


def test_encoder_layers_do_not_take_the_path_around_their_modules() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        expected = layer(x)
        model, _ = expand_attention(layer)
        calls = []
        layer.linear1.register_forward_hook(lambda *_: calls.append(1))
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    assert calls == [1]


def test_products_quantize_both_sides() -> None:
    product = ActivationProduct()
    a, b = torch.randn(2, 3), torch.randn(3, 2)
    assert torch.equal(product(a, b), a @ b)
    product.left_fake_quant, product.right_fake_quant = nn.ReLU(), nn.Tanh()
    assert torch.equal(product(a, b), a.relu() @ b.tanh())
