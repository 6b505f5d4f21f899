"""The channel axes agree with those of the ONNX nodes the layers become."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import numpy as np  # noqa: E402
import onnx_graphsurgeon as gs  # noqa: E402
from torch import nn  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from onnxq.operators.weight_axis import weight_axis  # noqa: E402
from tests.torch_bridge.nn.layers import CASES, Case  # noqa: E402
from torch_bridge.nn.layout import (  # noqa: E402
    blend_channels,
    channel_axis,
    out_channels,
    scale_channels,
    weight_layout,
)

all_layers = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def node(layer: nn.Module) -> gs.Node:
    if isinstance(layer, nn.Linear):
        return gs.Node("Gemm", attrs={"transB": 1})
    op = "ConvTranspose" if "Transpose" in type(layer).__name__ else "Conv"
    return gs.Node(op, attrs={"group": layer.groups})


@all_layers
def test_layout_is_that_of_the_exported_node(case: Case) -> None:
    layer = case.make()
    assert weight_layout(layer) == weight_axis(node(layer), layer.weight.dim())
    assert channel_axis(layer) == weight_layout(layer).axis
    assert out_channels(layer) == case.args[1]


@all_layers
def test_scaling_channels_scales_the_results(case: Case) -> None:
    layer = case.make(bias=False).double()
    gain = torch.randn(case.args[1], dtype=torch.float64)
    x = case.input().double()
    expected = layer(x) * gain.view(-1, *[1] * (layer.weight.dim() - 2))
    scaled = scale_channels(layer.weight, gain, weight_layout(layer))
    oracle = weight_layout(layer).scale(layer.weight.detach().numpy(), gain.numpy())
    np.testing.assert_array_equal(scaled.detach().numpy(), oracle)
    with torch.no_grad():
        layer.weight.copy_(scaled)
    torch.testing.assert_close(layer(x), expected)


@all_layers
def test_blending_channels(case: Case) -> None:
    layer, other = case.make().weight.double(), case.make().weight.double()
    layout = weight_layout(case.make())
    gains = torch.randn(2, case.args[1], dtype=torch.float64)
    blended = blend_channels(layer, gains[0], other, gains[1], layout)
    expected = scale_channels(layer, gains[0], layout) + scale_channels(other, gains[1], layout)
    torch.testing.assert_close(blended, expected)


def test_embeddings_have_one_scale() -> None:
    assert channel_axis(nn.Embedding(5, 3)) is None


def test_other_modules_have_no_axis() -> None:
    with pytest.raises(UnsupportedModelError, match="PReLU has no output-channel axis"):
        channel_axis(nn.PReLU())
