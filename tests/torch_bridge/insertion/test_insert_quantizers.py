"""Which tensors each backend quantizes, rule by rule, on a network that has all of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from onnxq.backend import backends, find_backend  # noqa: E402
from onnxq.quant.settings import LayerSettings  # noqa: E402
from torch_bridge.fake_quant import FakeQuantize  # noqa: E402
from torch_bridge.insertion.insert_quantizers import Maker  # noqa: E402
from torch_bridge.insertion.overrides import Override  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, enable_quantization  # noqa: E402


def activations(model: nn.Module, backend: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The quantizers of activations by the node that they follow."""
    prepared = prepare(model, backend, args, **kwargs)
    return {
        path.removesuffix("_fake_quant"): module.spec
        for path, module in prepared.named_modules()
        if isinstance(module, FakeQuantize) and "." not in path
    }


class Residual(nn.Module):
    """Stem, max pool, a residual sum with Relu, average pool, flatten, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1)
        self.pool = nn.MaxPool2d(2)
        self.one = nn.Conv2d(4, 4, 3, 1, 1)
        self.two = nn.Conv2d(4, 4, 3, 1, 1)
        self.gap = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.stem(x)))
        y = self.two(F.relu(self.one(x)))
        x = F.relu(y + x)
        return self.head(torch.flatten(self.gap(x), 1))


IMAGE = torch.zeros(1, 3, 8, 8)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        # What the layers read; the second branch of the sum comes from the accumulator.
        ("tensorrt", {"x", "stem", "one", "relu_2", "gap"}),
        # The same rules without that one.
        ("nnie", {"x", "stem", "one", "two", "relu_2", "gap"}),
        # Outputs too, after Relu.
        ("snpe", {"x", "stem", "one", "two", "relu_2", "gap", "head"}),
        ("ppl", {"x", "stem", "one", "two", "relu_2", "gap", "head"}),
        ("ppl-cuda", {"x", "stem", "one", "two", "relu_2", "gap", "head"}),
        ("stpu", {"x", "stem", "one", "two", "relu_2", "gap", "head"}),
        ("qnn", {"x", "stem", "one", "two", "relu_2", "gap", "head"}),
        # Outputs too, but not of matrix products.
        ("onnxruntime", {"x", "stem", "one", "two", "relu_2", "gap"}),
        # A Relu after a sum is an op of its own: both sides.
        ("tengine", {"x", "stem", "one", "two", "add", "relu_2", "gap", "head"}),
        # Fully connected layers stay float.
        ("tvm", {"x", "stem", "one", "two", "relu_2", "gap"}),
        # What every op writes, and what enters.
        ("vitis", {"x", "stem", "one", "two", "relu_2", "gap", "head"}),
        # What is read; a convolution that feeds a sum is added in its accumulator.
        ("openvino", {"x", "stem", "one", "relu_2", "gap"}),
        # Only what layers with weights read, nothing fused.
        ("academic", {"x", "relu", "relu_1", "gap"}),
        ("academic-nlp", {"gap"}),
        ("tensorrt-nlp", {"gap", "two", "stem"}),
    ],
)
def test_a_residual_network(backend: str, expected: set[str]) -> None:
    assert set(activations(Residual(), backend, IMAGE)) == expected


def test_ops_that_move_values_carry_no_quantizer_of_their_own() -> None:
    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)
            self.head = nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            left, right = self.conv(x).chunk(2, 1)
            y = F.pad(left, (1, 1)).permute(0, 2, 3, 1)[:, :, :2]
            return (
                self.head(F.dropout(y.reshape(x.shape[0], -1), 0.1, self.training)) + right.mean()
            )

    found = activations(Moves(), "tensorrt", torch.zeros(1, 4, 2, 2))
    assert set(found) == {"x", "conv", "mean"}


def test_padding_with_another_number_than_zero_is_not_just_a_move() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(F.pad(x, (1, 1, 1, 1), value=7.0))

    assert set(activations(Padded(), "tensorrt", IMAGE)) == {"pad"}


# -- signs and sharing --------------------------------------------------------------------------


class Branches(nn.Module):
    def __init__(self, *, relu: bool) -> None:
        super().__init__()
        self.left = nn.Conv2d(3, 4, 1)
        self.right = nn.Conv2d(3, 4, 1)
        self.relu = relu
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.relu(self.left(x)), self.right(x)
        right = torch.sigmoid(right) if self.relu else right
        return self.head(F.max_pool2d(torch.cat([left, right], 1), 2))


@pytest.mark.parametrize("relu", [True, False])
def test_openvino_shares_over_concat_and_is_unsigned_where_all_are(relu: bool) -> None:
    prepared = prepare(Branches(relu=relu), "openvino", (IMAGE,))
    calls = [str(n.target) for n in prepared.graph.nodes if "fake_quant" in str(n.target)]
    assert calls.count("left_fake_quant") == 2
    specs = activations(Branches(relu=relu), "openvino", IMAGE)
    assert set(specs) == {"x", "left"}
    assert (specs["x"].lo, specs["x"].hi) == (-128, 127)
    assert (specs["left"].lo, specs["left"].hi) == ((0, 255) if relu else (-128, 127))
    assert specs["left"].symmetric


def test_other_backends_quantize_behind_concat() -> None:
    assert set(activations(Branches(relu=True), "tensorrt", IMAGE)) == {"x", "cat"}
    assert set(activations(Branches(relu=True), "tengine", IMAGE)) == {
        *("x", "left", "right", "sigmoid", "cat", "head")
    }


# -- functions, methods, keywords ---------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b: a + b,
        lambda a, b: torch.add(a, b),
        lambda a, b: a.add(b),
        lambda a, b: torch.add(input=a, other=b),
        lambda a, b: a.clone().add_(b),
        lambda a, b: torch.sub(a, b),
        lambda a, b: a * b,
        lambda a, b: torch.mul(a, other=b),
    ],
)
def test_every_form_of_an_op_is_seen(form: Any) -> None:
    class Form(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return form(a, b)

    found = activations(Form(), "nnie", torch.zeros(2), torch.zeros(2))
    assert set(found) == {"a", "b"}


def test_in_place_sums() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            y += x
            return y

    assert set(activations(InPlace(), "stpu", IMAGE)) == {"x", "conv", "add"}


def test_sizes_and_indices_are_not_tensors_to_quantize() -> None:
    class Sizes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(8, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, ids: Tensor) -> Tensor:
            count = ids.shape[0] * 2 + 1
            shifted = (ids + 1) * count % 8
            return self.head(self.tokens(shifted)) * 0.5

    found = activations(Sizes(), "nnie", torch.zeros(2, 3, dtype=torch.long))
    assert set(found) == {"tokens", "head"}


def test_a_dict_of_inputs() -> None:
    class Dict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)

        def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"out": self.conv(batch["image"]) + batch["prior"]}

    batch = {"image": IMAGE, "prior": torch.zeros(1, 2, 8, 8)}
    prepared = prepare(Dict(), "openvino", (batch,))
    found = [p for p, m in prepared.named_modules() if isinstance(m, FakeQuantize)]
    assert len([p for p in found if "." not in p]) == 2
    assert prepared(batch)["out"].shape == (1, 2, 8, 8)


def test_readers_of_a_shape_read_the_tensor_itself() -> None:
    class Shape(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(self.conv(x), size=x.shape[-2:])

    graph = prepare(Shape(), "tensorrt", (IMAGE,)).graph
    reads = [n for n in graph.nodes if n.target is getattr]
    assert [n.args[0].op for n in reads] == ["placeholder"]


# -- weights that are tensors of the graph -------------------------------------------------------


class FunctionalLayers(nn.Module):
    """Weights read twice, computed from parameters, and read by a sum as well."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 3, 1, 1))
        self.gain = nn.Parameter(torch.ones(3, 1, 1, 1))
        self.rows = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(F.conv2d(x, self.kernel), self.kernel)
        standard = self.gain * (self.kernel - self.kernel.mean()) / self.kernel.std()
        x = F.conv2d(input=x, weight=standard)
        x = F.conv2d(x, self.kernel.transpose(0, 1) * self.rows[:, :, None, None])
        return F.linear(x.mean((2, 3)), self.rows) + self.rows[0]


@pytest.mark.parametrize("backend", sorted(backends()))
def test_nothing_is_quantized_twice(backend: str) -> None:
    prepared = prepare(FunctionalLayers(), backend, (IMAGE,))
    modules = dict(prepared.named_modules())

    def quantizers_before(node: Any) -> list[str]:
        found = []
        for read in node.all_input_nodes:
            if isinstance(modules.get(str(read.target)), FakeQuantize):
                found.append(read.name)
            elif not isinstance(modules.get(str(read.target)), nn.Module):
                found += quantizers_before(read)
        return found

    weights = [n for n in prepared.graph.nodes if str(n.target).endswith("weight_fake_quant")]
    wanted = find_backend(backend).placement.weights
    assert len(weights) == 4 * ("Conv" in wanted) + ("Linear" in wanted)
    assert [quantizers_before(node) for node in weights] == [[]] * len(weights)
    made = {
        n.args[0] for n in prepared.graph.nodes if isinstance(modules.get(n.target), FakeQuantize)
    }
    assert not [n for n in made if isinstance(modules.get(str(n.target)), FakeQuantize)]


def test_a_table_that_a_function_reads() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(8, 4))

        def forward(self, ids: Tensor) -> Tensor:
            return F.embedding(ids, self.table) + 1.0

    ids = torch.zeros(1, 3, dtype=torch.long)
    prepared = prepare(Rows(), "tensorrt-nlp", (ids,), include=F.embedding)
    rows = [row.module for row in prepared.onnxq_report.rows]
    assert rows == ["embedding_parameters.weight_fake_quant"]


# -- what stays float ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:prepare for")
@pytest.mark.parametrize("capture", ["fx", "export", "modules"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_with_computed_weights_are_reported(kind: Any, capture: Any) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            cells = kind(4, 4, batch_first=True)
            self.cells = nn.utils.parametrizations.weight_norm(cells, "weight_hh_l0")
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cells(x)[0])

    x = torch.zeros(1, 3, 4)
    report: Any = prepare(Tagger(), "tensorrt", (x,), capture=capture).onnxq_report
    summary = report.summary()
    assert summary.startswith("1 of 2 products quantized; float: ")
    # torch.export looks into parametrized modules, and finds one function.
    reason = "computes all its products in one function" if capture == "export" else "by a hook"
    assert "cells" in summary
    assert reason in summary


# -- transformers -------------------------------------------------------------------------------


class Scores(nn.Module):
    """A sum of embeddings, a scaled and masked product, a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8, 4)
        self.places = nn.Embedding(8, 4)
        self.query = nn.Linear(4, 4)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(ids)
        q = self.query(x)
        scores = torch.matmul(q, x.transpose(1, 2)) / 2 + mask
        return torch.matmul(torch.softmax(scores, -1), x) + x


def test_transformer_rules() -> None:
    ids, mask = torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3, 3)
    found = activations(Scores(), "tensorrt-nlp", ids, mask)
    # The sum of embeddings asks for nothing; the mask's sum only for the mask, since the scaled
    # scores are merged with it.
    assert set(found) == {"add", "query", "mask", "softmax", "matmul_1"}
    papers = activations(Scores(), "academic-nlp", ids, mask)
    assert set(papers) == {"add", "query", "softmax"}


# -- making quantizers --------------------------------------------------------------------------


def test_weights_follow_the_scheme() -> None:
    maker = Maker(find_backend("onnxruntime"))
    weight = maker.for_weight(0, "w")
    assert (weight.spec.axis, weight.spec.symmetric) == (0, True)
    assert (weight.spec.lo, weight.spec.hi) == (-127, 127)
    assert weight.name == "w"
    assert Maker(find_backend("snpe")).for_weight(0, "w").spec.axis is None
    assert maker.for_weight(0, "w", LayerSettings(weight_bits=4)).spec.hi == 7


def test_biases_only_where_they_are_trained_in_codes() -> None:
    assert Maker(find_backend("tensorrt")).for_bias("b") is None
    bias = Maker(find_backend("vitis")).for_bias("b")
    assert bias is not None
    assert bias.spec.power_of_two


def test_unsigned_only_where_zero_points_are_zero() -> None:
    maker = Maker(find_backend("openvino"), activation=Override(bits=4))
    assert (maker.for_activation("x", unsigned=True).spec.hi) == 15
    assert (maker.for_activation("x").spec.lo) == -8


@pytest.mark.parametrize(("bits", "learns"), [(8, False), (4, True)])
def test_the_scale_of_an_input_learns_only_below_8_bits(bits: int, learns: bool) -> None:
    changes = {"algorithm": "lsq", "bits": bits}
    prepared = prepare(Residual(), "tensorrt", (IMAGE,), activation=changes)
    scales = {
        path: module.scale.requires_grad
        for path, module in prepared.named_modules()
        if isinstance(module, FakeQuantize) and "." not in path
    }
    first = scales.pop("x_fake_quant")
    assert first is learns
    assert scales
    assert all(scales.values())
    # A user may decide otherwise.
    prepared.x_fake_quant.requires_grad_(True)
    image = torch.rand(IMAGE.shape, generator=torch.Generator().manual_seed(0))
    with calibrating(prepared), torch.no_grad():
        prepared(image)
    enable_quantization(prepared)
    prepared(image).sum().backward()
    assert prepared.x_fake_quant.scale.grad != 0


@pytest.mark.parametrize("backend", ["academic", "qonnx"])
def test_a_step_that_is_only_a_start_learns_at_inputs_too(backend: str) -> None:
    """LSQ's observer spreads 8 bits over many times the range of the data."""
    prepared = prepare(Residual(), backend, (IMAGE,))
    first = prepared.get_submodule("x_fake_quant")
    assert first.spec.bits == 8
    assert first.scale.requires_grad
    settled = prepare(Residual(), backend, (IMAGE,), activation={"observer": "minmax"})
    assert not settled.get_submodule("x_fake_quant").scale.requires_grad
