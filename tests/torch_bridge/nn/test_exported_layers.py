"""Layers trained and put into eval export as one node and FakeQuantize, with equal numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from onnxq import graph  # noqa: E402
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE  # noqa: E402
from onnxq.graph.constants import array  # noqa: E402
from onnxq.running import sessions  # noqa: E402
from tests.torch_bridge.nn.layers import (  # noqa: E402
    ACTIVATIONS,
    CASES,
    Case,
    Off,
    max_abs_quantizer,
    unfused,
)
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.nn.layout import channel_axis  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:You are using the legacy TorchScript:DeprecationWarning",
    "ignore:The feature will be removed:DeprecationWarning",
    # torch's own way of writing the sizes of reflecting and replicating pads
    "ignore:Constant folding - Only steps=1 can be constant folded:UserWarning",
)
PADDING_OPS = ("Pad", "Slice", "Concat", "Transpose", "Cast", "ConstantOfShape")
"""What exporters write before a convolution that does not pad with zeros."""


def trained(case: Case, activation: type | None, bias_bits: int = 0) -> nn.Module:
    """A fused layer after a few steps of training."""
    float_ = unfused(case, activation)
    with torch.no_grad():
        float_.bn.weight[0] = 0.0
    folded, bias = float_.quantized(case, Off()).deployed_parameters()
    weight = max_abs_quantizer(folded, channel_axis(float_.layer))
    entry = max_abs_quantizer(torch.tensor(3.0), None, bits=8)
    quantizer = max_abs_quantizer(bias, None, bits=bias_bits) if bias_bits else None
    made = case.fused_qat.from_float(float_.fused(case), weight, quantizer, entry)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        made(case.input()).square().mean().backward()
        optimizer.step()
    return made.eval()


def exported(module: nn.Module, x: Tensor, folder: Path) -> graph.Model:
    file = folder / "m.onnx"
    torch.onnx.export(
        module, (x,), str(file), dynamo=False, opset_version=17, input_names=["x"],
        output_names=["y"],
    )  # fmt: skip
    return graph.load(file)


def check(module: nn.Module, x: Tensor, model: graph.Model) -> None:
    with torch.no_grad():
        expected = module(x).numpy()
    y = sessions.reference(model).run({"x": x.numpy()})["y"]
    assert np.abs(y - expected).max() <= 1e-5 * np.abs(expected).max()


def ops(model: graph.Model) -> list[str]:
    quiet = ("Constant", "Identity", "Reshape", "Shape", "Unsqueeze")
    return [n.op for n in model.nodes() if n.op not in quiet]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_eval_exports_as_the_deployed_layer(
    case: Case, activation: type | None, tmp_path: Path
) -> None:
    module, x = trained(case, activation), case.input()
    model = exported(module, x, tmp_path)
    check(module, x, model)
    layer = {"Linear": "Gemm"}.get(case.stem, case.stem.rstrip("123d"))
    end = {None: [], nn.ReLU: ["Relu"], nn.ReLU6: ["Clip"]}[activation]
    pads = PADDING_OPS if "padding_mode" in case.kwargs else ()
    assert [op for op in ops(model) if op not in pads] == [
        "FakeQuantize",
        "FakeQuantize",
        layer,
        *end,
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_folded_before_the_export_weights_are_written_bit_for_bit(
    case: Case, tmp_path: Path
) -> None:
    module, x = trained(case, nn.ReLU), case.input()
    weight, bias = module.deployed_parameters()
    with qnn.folded_bn(module):
        model = exported(module, x, tmp_path)
    check(module, x, model)
    (layer,) = model.nodes("Conv", "ConvTranspose", "Gemm")
    (quantizer,) = [n for n in model.nodes(FAKE_QUANTIZE) if array(n.inputs[0]) is not None]
    np.testing.assert_array_equal(array(quantizer.inputs[0]), weight.detach().numpy())
    np.testing.assert_array_equal(array(layer.inputs[2]), bias.detach().numpy())
    axis = channel_axis(module)
    assert quantizer.attrs["axis"] == axis
    assert array(quantizer.inputs[1]).shape == (weight.shape[axis],)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_quantized_bias_is_exported_as_such(case: Case, tmp_path: Path) -> None:
    module, x = trained(case, nn.ReLU, bias_bits=8), case.input()
    with qnn.folded_bn(module):
        model = exported(module, x, tmp_path)
    check(module, x, model)
    assert len(model.nodes(FAKE_QUANTIZE)) == 3


def test_embedding(tmp_path: Path) -> None:
    layer = nn.Embedding(9, 4)
    module = qnn.QatEmbedding.from_float(layer, max_abs_quantizer(layer.weight, None)).eval()
    index = torch.tensor([[0, 8, 3]])
    model = exported(module, index, tmp_path)
    assert ops(model) == ["FakeQuantize", "Gather"]
    check(module, index, model)


def test_linear_on_sequences(tmp_path: Path) -> None:
    layer = nn.Linear(4, 3)
    module = qnn.FusedQatLinear.from_float(layer, max_abs_quantizer(layer.weight, 0)).eval()
    x = torch.randn(2, 5, 4)
    model = exported(module, x, tmp_path)
    check(module, x, model)
    assert len(model.nodes(FAKE_QUANTIZE)) == 1
