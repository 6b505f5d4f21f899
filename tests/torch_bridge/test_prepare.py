"""prepare: a copy with quantizers where the backend has them, and clear words where it cannot."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.backend import backends, find_backend  # noqa: E402
from onnxq.errors import OptionError, UnsupportedModelError  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES, Conv1dNet, ResNet18  # noqa: E402
from torch_bridge import placing  # noqa: E402
from torch_bridge.capture.flat_call import leaves  # noqa: E402
from torch_bridge.fake_quant import FakeQuantize  # noqa: E402
from torch_bridge.insertion.overrides import Override  # noqa: E402
from torch_bridge.insertion.rules import Rules  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, enable_calibration, enable_quantization  # noqa: E402

IMAGE = (torch.zeros(2, 3, 16, 16),)


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, 1, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )


def quantizers(model: nn.Module) -> dict[str, FakeQuantize]:
    return {p: m for p, m in model.named_modules() if isinstance(m, FakeQuantize)}


def tensors(model: nn.Module, args: Any, kwargs: Any) -> list[Tensor]:
    with torch.no_grad():
        return [t for _, t in leaves(model(*args, **kwargs))]


def test_the_rules_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Rules] = []

    def counted(*args: Any) -> Rules:
        made.append(Rules(*args))
        return made[-1]

    monkeypatch.setattr(placing, "Rules", counted)
    prepare(small(), "academic", IMAGE)  # the one with bits of their own for first and last layers
    assert len(made) == 1
    assert made[0].boundary


# -- runs of the example ------------------------------------------------------------------------


class Counted(nn.Conv2d):
    """Counts its calls with tensors, over all copies of it."""

    def __init__(self, calls: list[bool]) -> None:
        super().__init__(3, 4, 1)
        self.calls = calls

    def __deepcopy__(self, memo: dict[int, Any]) -> Counted:
        return memo.setdefault(id(self), Counted(self.calls))

    def forward(self, input: Tensor) -> Tensor:
        self.calls.append(self.training)
        return super().forward(input)


class Branching(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() >= 0 else x


@pytest.mark.filterwarnings("ignore:prepare for")
@pytest.mark.parametrize("kind", [nn.Sequential, Branching], ids=["traced", "untraced"])
def test_the_example_runs_once_in_float_and_once_prepared(kind: type[nn.Sequential]) -> None:
    calls: list[bool] = []
    model = kind(Counted(calls), nn.ReLU(), nn.Conv2d(4, 4, 1)).train()
    prepared = prepare(model, "tensorrt", IMAGE, leaf_modules=[Counted])
    assert prepared.onnxq_report.traced is (kind is nn.Sequential)
    assert calls == [False, False], "once each, in eval mode"


class Cached(nn.Module):
    """Adds a ramp that its first call makes with code that cannot be traced."""

    def __init__(self) -> None:
        super().__init__()
        self.ramp: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.ramp is None:
            self.ramp = torch.arange(x.shape[-1]).float()
        return x + self.ramp


def test_a_module_that_fills_a_cache_in_its_first_call_is_traced() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), Cached(), nn.ReLU())
    prepared = prepare(model, "tensorrt", IMAGE)
    assert prepared.onnxq_report.leaves == []
    assert "add" in {n.name for n in prepared.graph.nodes}
    assert torch.equal(prepared(*IMAGE), model(*IMAGE))


# -- every backend on every architecture --------------------------------------------------------

EIGHT_BITS = sorted(set(backends()) - {"academic", "academic-nlp"})


@pytest.mark.filterwarnings("ignore:prepare for")  # convolutions have nothing for the NLP backends
@pytest.mark.parametrize("backend", EIGHT_BITS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_eight_bits_compute_nearly_the_same(name: str, backend: str) -> None:
    architecture = ARCHITECTURES[name]
    model = architecture.build().eval()
    args, kwargs = architecture.inputs(8), architecture.kwargs(8)
    expected = tensors(model, args, kwargs)
    prepared = prepare(model, backend, args, kwargs)
    assert prepared.onnxq_report.traced
    assert prepared.onnxq_report.leaves == []
    assert prepared.onnxq_backend == backend
    for a, b in zip(expected, tensors(prepared, args, kwargs), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)  # still off
    if not prepared.onnxq_report.rows:
        return
    enable_calibration(prepared)
    tensors(prepared, args, kwargs)
    enable_quantization(prepared)
    got = tensors(prepared, args, kwargs)
    errors = [((b - a).norm() / a.norm()).item() for a, b in zip(expected, got, strict=True)]
    assert 0 < max(errors) < 0.25


@pytest.mark.parametrize("backend", ["onnxruntime", "vitis", "academic", "nnie"])
def test_training_reaches_every_parameter(backend: str) -> None:
    prepared = prepare(small().train(), backend, IMAGE)
    with calibrating(prepared):
        prepared(torch.randn(8, 3, 16, 16))
    enable_quantization(prepared)
    prepared(torch.randn(8, 3, 16, 16)).square().sum().backward()
    learning = [(n, p) for n, p in prepared.named_parameters() if p.requires_grad]
    assert [n for n, p in learning if p.grad is None] == []


# -- what is left alone -------------------------------------------------------------------------


def test_the_users_model_is_untouched() -> None:
    model = small().train()
    before = copy.deepcopy(model.state_dict())
    classes = [type(m) for m in model.modules()]
    prepared = prepare(model, "tensorrt", IMAGE, freeze_bn=True)
    with torch.no_grad():
        for parameter in prepared.parameters():
            parameter.add_(1)
    prepared.eval()
    assert [type(m) for m in model.modules()] == classes
    assert all(m.training for m in model.modules())
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_kept(training: bool) -> None:
    prepared = prepare(small().train(training), "tensorrt", IMAGE)
    assert {m.training for m in prepared.modules()} == {training}


def test_weights_that_were_tied_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(16, 8)
            self.head = nn.Linear(8, 16, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.tokens(ids))

    prepared = prepare(Tied(), "tensorrt-nlp", (torch.zeros(2, 3, dtype=torch.long),))
    assert prepared.head.weight is prepared.tokens.weight


# -- what comes out -----------------------------------------------------------------------------


def test_copies_pickles_and_states() -> None:
    prepared = prepare(small(), "onnxruntime", IMAGE)
    x = torch.randn(4, 3, 16, 16)
    with calibrating(prepared):
        prepared(x)
    enable_quantization(prepared)
    prepared.eval()
    expected = prepared(x)
    for again in (copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert torch.equal(again(x), expected)
        assert again.onnxq_backend == "onnxruntime"
        assert len(again.onnxq_report.rows) == len(quantizers(prepared))
    other = prepare(small(), "onnxruntime", IMAGE).eval()
    other.load_state_dict(prepared.state_dict())
    assert torch.equal(other(x), expected)


def test_modules_called_more_than_once_are_quantized_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.layer(self.act(self.layer(x))))

    found = quantizers(prepare(Twice(), "tensorrt", (torch.zeros(2, 4),)))
    assert sorted(found) == ["act_fake_quant", "layer.weight_fake_quant", "x_fake_quant"]


def test_functional_layers_have_quantized_weights() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(4, 3, 3, 3))
            self.up = nn.Parameter(torch.randn(4, 2, 2, 2))

        def forward(self, x: Tensor) -> Tensor:
            y = F.relu(F.conv2d(input=x, weight=self.kernel))
            return F.conv_transpose2d(y, self.up, stride=2)

    prepared = prepare(Functional(), "tensorrt", IMAGE)
    specs = {path: q.spec.axis for path, q in quantizers(prepared).items()}
    assert specs == {
        "x_fake_quant": None,
        "relu_fake_quant": None,
        "conv2d_parameters.weight_fake_quant": 0,
        "conv_transpose2d_parameters.weight_fake_quant": 1,
    }


def test_first_and_last_layers_have_eight_bits_for_papers() -> None:
    prepared = prepare(ResNet18(), "academic", (torch.zeros(1, 3, 32, 32),))
    bits = {path: q.spec.bits for path, q in quantizers(prepared).items()}
    eight = {path for path, b in bits.items() if b == 8}
    assert set(bits.values()) == {4, 8}
    weights = {path for path in eight if path.endswith("weight_fake_quant")}
    assert len(weights) == 2
    assert len(eight) == 4


def test_vitis_quantizes_biases() -> None:
    found = quantizers(prepare(small(), "vitis", IMAGE))
    assert {p for p in found if p.endswith("bias_fake_quant")} == {
        "0.bias_fake_quant",
        "3.bias_fake_quant",
        "6.bias_fake_quant",
    }
    assert all(q.spec.power_of_two for q in found.values())


def test_tvm_leaves_fully_connected_layers_float() -> None:
    prepared = prepare(small(), "tvm", IMAGE)
    assert type(prepared.get_submodule("6")) is nn.Linear


def test_batch_norm_may_be_frozen() -> None:
    prepared = prepare(small().train(), "tensorrt", IMAGE, freeze_bn=True)
    before = prepared.get_submodule("0").bn.running_mean.clone()
    prepared.train()(torch.randn(4, 3, 16, 16))
    assert torch.equal(prepared.get_submodule("0").bn.running_mean, before)


def test_a_single_layer_can_be_prepared() -> None:
    found = quantizers(prepare(nn.Conv2d(3, 4, 3), "tensorrt", IMAGE))
    assert len(found) == 2


# -- what a user changes ------------------------------------------------------------------------


def test_bits_algorithms_and_observers_can_be_changed() -> None:
    prepared = prepare(
        small(),
        "tensorrt",
        IMAGE,
        weight={"bits": 4, "algorithm": "dorefa"},
        activation=Override(observer="percentile", observer_options={"quantile": 0.99}),
    )
    found = quantizers(prepared)
    weight = found["0.weight_fake_quant"]
    assert (weight.algorithm, weight.spec.lo, weight.spec.hi) == ("dorefa", -7, 7)
    (first, *_) = (q for p, q in found.items() if not p.endswith("weight_fake_quant"))
    assert type(first.observer).__name__ == "Percentile"
    assert (first.spec.lo, first.spec.hi) == (-128, 127)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight": {"bit": 4}}, "no option 'bit'"),
        ({"weight": {"bits": 1}}, "1 bits cannot be trained"),
        ({"weight": "lsqq"}, "no quantization algorithm 'lsqq'"),
        ({"activation": {"observer": "minmaxx"}}, "no observer 'minmaxx'"),
        ({"activation": {"per_channel": True}}, "one scale per tensor for activations"),
        ({"activation": {"symmetric": False}}, "no zero points for activations"),
        ({"backend": "nnie", "weight": "lsq"}, "on the grid of 'nnie'"),
        ({"backend": "snpe", "weight": {"per_channel": True}}, "one scale per tensor for weights"),
        ({"weight": "pact"}, "'pact' cannot be int8 .* per channel"),
        ({"backend": "tensort"}, "unknown backend 'tensort'"),
        ({"weight": {"options": {"grad": 1}}}, "'lsq' has no option 'grad'"),
        (
            {"activation": {"observer": "percentile", "observer_options": {"quantil": 1}}},
            "'percentile' has no option 'quantil'",
        ),
    ],
)
def test_changes_that_make_no_sense(change: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        prepare(small(), **{"backend": "tensorrt", "example_inputs": IMAGE} | change)
    assert caught.value.fix


def test_scales_per_channel_where_there_are_no_channels() -> None:
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 2))
    ids = (torch.zeros(1, 3, dtype=torch.long),)
    with pytest.raises(OptionError, match=r"'0.weight' has no output channels .an Embed") as caught:
        prepare(model, "tensorrt-nlp", ids, weight={"per_channel": True})
    assert "exclude '0'" in caught.value.fix
    without = prepare(model, "tensorrt-nlp", ids, weight={"per_channel": True}, exclude="0")
    assert quantizers(without)["1.weight_fake_quant"].spec.axis == 0
    assert quantizers(prepare(model, "tensorrt-nlp", ids))["0.weight_fake_quant"].spec.axis is None


@pytest.mark.parametrize(
    ("exclude", "weights"),
    [
        ("3", {"0", "6"}),
        (["0", "6"], {"3"}),
        ("[03]", {"6"}),
        (nn.Conv2d, {"6"}),
        ((nn.Linear, "0"), {"3"}),
        ((), {"0", "3", "6"}),
    ],
)
def test_exclude(exclude: Any, weights: set[str]) -> None:
    found = quantizers(prepare(small(), "tensorrt", IMAGE, exclude=exclude))
    made = {p.removesuffix(".weight_fake_quant") for p in found if "weight" in p}
    assert made == weights


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(self.left(x), self.right(x))
        return torch.softmax(y, -1) + y


def test_exclude_and_include_of_functions_and_nodes() -> None:
    x = (torch.zeros(2, 4),)
    assert set(quantizers(prepare(Sums(), "stpu", x))) >= {"left_fake_quant", "softmax_fake_quant"}
    less = quantizers(prepare(Sums(), "stpu", x, exclude=[torch.add, "add_1"]))
    assert "softmax_fake_quant" not in less
    more = quantizers(prepare(Sums(), "academic", x, include=torch.softmax))
    assert "add_fake_quant" in more
    assert "add_fake_quant" not in quantizers(prepare(Sums(), "academic", x))


@pytest.mark.parametrize(
    ("argument", "selector", "words", "fix"),
    [
        ("exclude", "lefft", "exclude: no module, function or node matches 'lefft'", "'left'"),
        ("include", "riht", "include: no module, function or node matches 'riht'", "'right'"),
        ("exclude", "block*", r"exclude: no .* matches 'block\*'", "choose from"),
        ("exclude", nn.Conv2d, r"exclude: no .* matches 'torch\.nn\.Conv2d'", "torch.nn.Linear"),
        ("exclude", torch.sub, r"exclude: no .* matches 'torch\.sub'", "torch.add"),
        ("leaf_modules", ["layer"], "leaf_modules: no .* matches 'layer'", "left"),
    ],
)
def test_unknown_selectors(argument: str, selector: Any, words: str, fix: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        prepare(Sums(), "tensorrt", (torch.zeros(2, 4),), **{argument: selector})
    assert fix in caught.value.fix


def test_leaf_modules_are_not_looked_into() -> None:
    model = nn.Sequential(small(), nn.ReLU())
    prepared = prepare(model, "tensorrt", IMAGE, leaf_modules=["0"])
    assert type(prepared.get_submodule("0")) is nn.Sequential
    assert isinstance(prepared.get_submodule("0.1"), nn.BatchNorm2d), "nothing is fused inside"
    assert "0.3.input_fake_quant" in quantizers(prepared)
    by_class = prepare(Conv1dNet(), "tensorrt", (torch.zeros(2, 4, 32),), leaf_modules=[nn.Linear])
    assert "head.weight_fake_quant" in quantizers(by_class)


def test_attributes_and_methods_are_preserved() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = small()
            self.body.stride = 16
            self.classes = ["cat", "dog"]

        def label(self, index: int) -> str:
            return self.classes[index]

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    keep = ["classes", "label", "body.stride"]
    prepared = prepare(Named(), "tensorrt", IMAGE, preserve_attributes=keep)
    for again in (prepared, copy.deepcopy(prepared), copy.deepcopy(copy.deepcopy(prepared))):
        assert again.body.stride == 16
        again.classes = ["bird"]
        assert again.label(0) == "bird"
    with pytest.raises(OptionError, match=r"the model has no 'body\.strid'") as caught:
        prepare(Named(), "tensorrt", IMAGE, preserve_attributes=["body.strid"])
    assert "body.stride" in caught.value.fix


# -- what cannot be -----------------------------------------------------------------------------


def test_inputs_that_do_not_fit() -> None:
    with pytest.raises(OptionError, match="example inputs do not fit Sequential"):
        prepare(small(), "tensorrt")
    with pytest.raises(OptionError, match="Sequential fails on the example inputs"):
        prepare(small(), "tensorrt", (torch.zeros(2, 5, 16, 16),))


def test_only_modules_are_prepared() -> None:
    with pytest.raises(OptionError, match="a function is not a torch module"):
        prepare(lambda x: x, "tensorrt", IMAGE)  # type: ignore[arg-type]


def test_a_prepared_model_is_not_prepared_again() -> None:
    with pytest.raises(OptionError, match="is prepared already"):
        prepare(prepare(small(), "tensorrt", IMAGE), "tensorrt", IMAGE)


def test_a_model_that_cannot_be_copied() -> None:
    model = small()
    model.cached = model[0].weight * 2  # part of an autograd graph
    with pytest.raises(UnsupportedModelError, match="cannot be copied"):
        prepare(model, "tensorrt", IMAGE)


def test_nothing_to_quantize_is_said() -> None:
    with pytest.warns(UserWarning, match="nothing in the model is quantized for tensorrt"):
        prepared = prepare(nn.Sequential(nn.Tanh()), "tensorrt", (torch.zeros(2),))
    assert prepared.onnxq_report.rows == []
    x = torch.randn(2)
    assert torch.equal(prepared(x), torch.tanh(x))


def test_a_backend_may_be_a_value() -> None:
    prepared = prepare(small(), find_backend("snpe"), IMAGE[0])
    assert prepared.onnxq_backend is find_backend("snpe")


# -- symmetric activations ----------------------------------------------------------------------

WITH_ZERO_POINTS = sorted(
    name for name, found in backends().items() if not found.scheme.activation.trained().symmetric
)


@pytest.mark.parametrize("backend", WITH_ZERO_POINTS)
@pytest.mark.parametrize("way", ["activation", "settings"])
@pytest.mark.filterwarnings("ignore:prepare for")
def test_symmetric_activations_are_signed_or_refused(backend: str, way: str) -> None:
    changes: dict[str, Any] = {"activation": {"symmetric": True}}
    if way == "settings":
        changes = {"settings": [[nn.Module, {"symmetric": True}]]}
    kind = nn.Linear if backend.endswith("nlp") else nn.Conv2d
    size = (4, 4) if kind is nn.Linear else (4, 4, 1)
    model = nn.Sequential(kind(*size), nn.Tanh(), kind(*size)).eval()
    x = torch.linspace(-1, 1, 32).reshape((8, 4) if kind is nn.Linear else (2, 4, 2, 2))
    types = find_backend(backend).scheme.activation.types
    if not any(name.startswith("int") for name in types):
        with pytest.raises(OptionError, match="no signed type for activations"):
            prepare(model, backend, (x,), **changes)
        return
    q = prepare(model, backend, (x,), **changes)
    with calibrating(q):
        q(x)
    enable_quantization(q)
    quantizer = quantizers(q)["input_1_fake_quant"]
    assert quantizer.spec.symmetric
    assert quantizer.spec.lo < 0
    assert not quantizer.zero_point.any()
    step = quantizer.scale.item()
    assert torch.allclose(quantizer(x), x, atol=1.01 * step), "negative values are not clipped"
