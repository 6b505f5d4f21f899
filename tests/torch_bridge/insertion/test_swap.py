"""Swapping float modules for quantized ones, and patterns of one's own."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from tests.torch_bridge.nn.layers import Off, max_abs_quantizer  # noqa: E402
from tests.torch_bridge.traced import targets, traced  # noqa: E402
from torch_bridge import nn as qnn  # noqa: E402
from torch_bridge.insertion import fusion, patterns  # noqa: E402
from torch_bridge.insertion.pattern import Link, Pattern  # noqa: E402
from torch_bridge.insertion.pattern_table import PatternTable  # noqa: E402


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> PatternTable:
    """The table, changed for one test only."""
    own = copy.deepcopy(patterns.PATTERNS)
    monkeypatch.setattr(fusion, "PATTERNS", own)
    return own


# -- swapping ------------------------------------------------------------------------------------


class Branching(nn.Module):
    """A model that no tracer follows."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.layers.append(self.layers[0])
        self.conv = nn.ConvTranspose1d(8, 4, 2, groups=2)
        self.head = nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4))

    def forward(self, index: Tensor) -> Tensor:
        y = self.embed(index)
        for layer in self.layers:
            y = torch.tanh(layer(y)) if y.sum().item() > 0 else layer(y)
        return self.head(self.conv(y.transpose(1, 2)))


def test_swapping_needs_no_graph() -> None:
    model = Branching()
    quantized = copy.deepcopy(model)
    parameters = {id(p) for p in quantized.parameters()}
    asked: list[tuple[str, int | None]] = []

    def make(layer: nn.Module, axis: int | None) -> nn.Module:
        asked.append((type(layer).__name__, axis))
        return Off()

    assert fusion.swap(quantized, make) == []
    assert asked == [
        ("Embedding", None),
        ("Linear", 0),
        ("Linear", 0),
        ("ConvTranspose1d", 1),
        ("Conv1d", 0),
    ]
    assert quantized.layers[0] is quantized.layers[2]
    assert type(quantized.head[0]) is qnn.QatConv1d
    assert {id(p) for p in quantized.parameters()} == parameters
    assert quantized.state_dict().keys() == model.state_dict().keys()
    index = torch.randint(0, 10, (2, 6))
    assert torch.equal(quantized.eval()(index), model.eval()(index))
    assert fusion.swap(quantized, make) == []
    assert len(asked) == 5, "what is quantized is not quantized again"


def test_a_refused_layer_stays_float() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    head = model[1]
    fusion.swap(model, lambda layer, axis: None if layer is head else Off())
    assert [type(m) for m in model] == [qnn.QatLinear, nn.Linear]


def test_biases_and_inputs() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, bias=False))
    fusion.swap(
        model,
        lambda layer, axis: max_abs_quantizer(layer.weight, axis),
        make_bias_quantizer=lambda layer: max_abs_quantizer(layer.bias, None),
        make_input_quantizer=lambda layer: Off() if layer.bias is None else None,
    )
    assert model[0].bias_fake_quant is not None
    assert model[0].input_fake_quant is None
    assert model[1].bias_fake_quant is None
    assert model[1].input_fake_quant is not None


def test_quantizers_get_the_names_of_their_places() -> None:
    class Named(Off):
        name = ""

    model = nn.Sequential(nn.Sequential(nn.Linear(3, 3)))
    fusion.swap(model, lambda layer, axis: Named(), make_bias_quantizer=lambda layer: Named())
    assert model[0][0].weight_fake_quant.name == "0.0.weight_fake_quant"
    assert model[0][0].bias_fake_quant.name == "0.0.bias_fake_quant"


class Padded(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (1, 0, 1, 0)))


def test_what_is_left_float_is_reported() -> None:
    model = nn.Sequential(
        Padded(3, 3, 2),
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
        nn.Embedding(4, 3, max_norm=1.0),
        nn.ReLU(),
    )
    report = fusion.swap(model, lambda layer, axis: Off())
    assert [line.split(",")[0] for line in report] == [
        "0: left float",
        "1: left float",
        "2: left float",
    ]
    assert "Padded is a subclass of Conv2d" in report[0]
    assert "max_norm" in report[2]
    assert type(model[0]) is Padded


def test_a_single_layer_cannot_be_swapped_in_place() -> None:
    with pytest.raises(UnsupportedModelError, match="a single Linear"):
        fusion.swap(nn.Linear(3, 3), lambda layer, axis: Off())


# -- own patterns --------------------------------------------------------------------------------


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


class ScaledPadded(Padded):
    @classmethod
    def from_float(cls, conv: Padded, scale: Scale) -> ScaledPadded:
        made = cls(conv.in_channels, conv.out_channels, conv.kernel_size)
        made.weight, made.bias, made.scale = conv.weight, conv.bias, scale
        return made

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(super().forward(x))


class QatScaledPadded(ScaledPadded):
    @classmethod
    def from_float(cls, fused: ScaledPadded, weight, bias=None, input_=None) -> QatScaledPadded:
        made = super().from_float(fused, fused.scale)
        made.weight_fake_quant = weight
        return made

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(x, self.weight_fake_quant(weight), bias)


def test_a_new_pattern_is_added_in_one_place(table: PatternTable) -> None:
    table.add(
        Pattern(
            "Padded+Scale",
            chain=(Link("Padded", (Padded,)), Link("Scale", (Scale,))),
            fused=ScaledPadded,
            qat=QatScaledPadded,
        )
    )
    model = nn.Sequential(Padded(3, 3, 2), Scale())
    graph = traced(copy.deepcopy(model))
    assert fusion.fuse(graph) == ["0 + 1: fused (Padded+Scale)"]
    x = torch.randn(1, 3, 4, 4)
    assert torch.equal(graph(x), model(x))
    fusion.swap(graph, lambda layer, axis: max_abs_quantizer(layer.weight, axis, bits=3))
    assert type(graph.get_submodule("0")) is QatScaledPadded
    assert not torch.equal(graph(x), model(x))
    assert fusion.from_float_names(graph, model.state_dict()).keys() == {
        "0.weight",
        "0.bias",
        "0.scale.by",
    }


def test_a_backend_has_its_own_patterns(table: PatternTable) -> None:
    class Chip(qnn.FusedQatConv2d): ...

    common = next(p for p in table.of() if p.name == "Conv2d+BatchNorm+ReLU")
    own = Pattern(common.name, common.chain, qat=Chip, fused=common.fused)
    table.add(own, backend="chip")
    table.remove("Conv2d+BatchNorm+ReLU", backend="plain")
    table.remove("Conv2d+BatchNorm", backend="plain")
    kinds = {}
    for backend in (None, "chip", "plain"):
        graph = traced(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU()))
        report = fusion.fuse(graph, backend)
        fusion.swap(graph, lambda layer, axis: Off(), backend=backend)
        kinds[backend] = type(graph.get_submodule("0")), len(targets(graph)), len(report)
    assert kinds == {
        None: (qnn.FusedQatConv2d, 1, 1),
        "chip": (Chip, 1, 1),
        "plain": (qnn.QatConv2d, 3, 1),
    }
