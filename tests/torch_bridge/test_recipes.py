"""The same recipe gives the same quantizers in training and on the ONNX graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.calibration.recipe import Recipe  # noqa: E402
from onnxq.canonical.quantizers import QUANTIZERS, row_of  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from onnxq.quant.settings import Settings  # noqa: E402
from onnxq.workflows.quantize import Quantization, quantize  # noqa: E402


class Block(nn.Module):
    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, bias=not norm)
        self.norm = nn.BatchNorm2d(4) if norm else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return torch.relu((y if self.norm is None else self.norm(y)) + x)


class Net(nn.Module):
    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 4, 3), nn.Sequential(Block(norm), Block(norm))
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(36, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.body(torch.relu(self.stem(x)))).flatten(1))


def exact() -> nn.Module:
    """A network whose sums have no rounding error, so that their order does not matter."""
    made, random = Net().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, each in made.named_parameters():
            most, unit = (8, 64) if name.startswith("stem") else (1, 8)
            each.copy_(torch.randint(-most, most + 1, each.shape, generator=random) / unit)
    return made


def inexact() -> nn.Module:
    torch.manual_seed(0)
    made = Net(norm=True).eval()
    for each in made.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.running_mean.normal_()  # type: ignore[union-attr, operator]
            each.running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    return made


class Encoder(nn.Module):
    """One layer of a transformer."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.enter = nn.Linear(8, size)
        self.one, self.two = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value, self.out = (nn.Linear(size, size) for _ in range(4))
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x.reshape(1, -1, 8))
        y = self.one(x)
        query, key, value = (
            layer(y).reshape(1, 24, 2, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(torch.matmul(query, key.transpose(-1, -2)) / 3, -1)
        heads = torch.matmul(weights, value)
        x = x + self.out(heads.transpose(1, 2).reshape(1, 24, -1))
        return x + self.down(nn.functional.gelu(self.up(self.two(x))))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return Encoder().eval()


def samples() -> list[Tensor]:
    random = torch.Generator().manual_seed(1)
    return [torch.randint(-64, 65, (1, 3, 8, 8), generator=random) / 32 for _ in range(6)]


def exported(model: nn.Module, path: Path, dynamo: bool) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (samples()[0],), str(path), dynamo=dynamo, input_names=["x"])
    return path


def quantized(
    model: nn.Module, backend: str, folder: Path, *, dynamo: bool = False, **more: Any
) -> Quantization:
    feeds = [{"x": each.numpy()} for each in samples()]
    more = {"smooth": False, "verify": False, **more}
    return quantize(exported(model, folder / "net.onnx", dynamo), backend, feeds, **more)


def calibrated(model: nn.Module, recipe: Any, data: list[Tensor] | None = None) -> nn.Module:
    q = tb.prepare(model, None, (samples()[0],), settings=recipe)
    with torch.no_grad(), tb.calibrating(q):
        for each in data or samples():
            q(each)
    return q


Grid = tuple[np.ndarray, np.ndarray, int, int]


def of_graph(found: Quantization) -> dict[str, list[Grid]]:
    grids: dict[str, list[Grid]] = {"weights": [], "activations": []}
    for node in found.source.nodes(*QUANTIZERS):
        row = row_of(node)
        weight = not node.inputs[0].inputs and row.tensor != "x"
        grids["weights" if weight else "activations"].append(
            (row.scale, row.zero_point, row.lo, row.hi)
        )
    return grids


def of_module(q: nn.Module) -> dict[str, list[Grid]]:
    rows = {
        part: [
            each.qparams(path)
            for path, each in tb.quantizers(q, part).items()
            if not path.endswith("bias_fake_quant")  # made by the conversion, on the ONNX side
        ]
        for part in ("weights", "activations")
    }
    return {part: [(r.scale, r.zero_point, r.lo, r.hi) for r in of] for part, of in rows.items()}


def assert_same(left: dict[str, list[Grid]], right: dict[str, list[Grid]], ulps: float) -> None:
    for part in ("weights", "activations"):
        assert len(left[part]) == len(right[part]) > 0
        for one, other in zip(left[part], right[part], strict=True):
            a, b = one[0].astype(np.float64), other[0].astype(np.float64)
            assert a.shape == b.shape
            # The scale of a folded weight is kept without the gain of its batch norm, and rounded.
            most = max(ulps, 1) if part == "weights" else ulps
            assert (np.abs(a - b) <= most * np.spacing(b.astype(np.float32))).all()
            assert np.array_equal(one[1], other[1])
            assert one[2:] == other[2:]


METHODS = ("min-max", "percentile:99.9", "mse", "entropy", "moving-average")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "openvino", "vitis", "academic"])
def test_the_same_ranges(backend: str, method: str, tmp_path: Path) -> None:
    """The statistics alone give them: without the record of the recipe."""
    model = exact()
    found = quantized(model, backend, tmp_path, method=method)
    choices = replace(found.recipe, grids=())
    assert_same(of_module(calibrated(model, choices)), of_graph(found), ulps=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("make", [inexact, encoder])
@pytest.mark.parametrize("dynamo", [False, True])
def test_the_same_ranges_where_sums_are_rounded(
    make: Callable[[], nn.Module], method: str, dynamo: bool, tmp_path: Path
) -> None:
    """Runtimes add in different orders, and batch norms are folded in float32 by torch."""
    model = make()
    found = quantized(model, "onnxruntime", tmp_path, method=method, dynamo=dynamo)
    assert_same(of_module(calibrated(model, found.recipe)), of_graph(found), ulps=0)


@pytest.mark.parametrize("backend", ["tensorrt", "vitis", "snpe", "openvino"])
def test_the_same_rounded_ranges_for_other_backends(backend: str, tmp_path: Path) -> None:
    found = quantized(inexact(), backend, tmp_path, method="mse")
    assert_same(of_module(calibrated(inexact(), found.recipe)), of_graph(found), ulps=0)


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
        self.head = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([torch.relu(self.one(x)), self.two(x)], 1))


@pytest.mark.parametrize("method", ["min-max", "mse", "percentile:99"])
def test_a_shared_quantizer(method: str, tmp_path: Path) -> None:
    """OpenVINO has one range for all inputs of a Concat: one module, and a quantizer for each."""
    torch.manual_seed(0)
    model = Joined().eval()
    found = quantized(model, "openvino", tmp_path, method=method)
    graph, module = (
        [(float(scale), int(zero)) for scale, zero, _, _ in grids["activations"]]
        for grids in (of_graph(found), of_module(calibrated(model, found.recipe)))
    )
    assert len(graph) == len(module) + 1
    assert set(graph) == set(module)


def test_other_data_give_ranges_of_their_own(tmp_path: Path) -> None:
    found = quantized(inexact(), "onnxruntime", tmp_path, method="mse")
    others = [each.flip(-1) * 0.9 for each in samples()]
    choices = replace(found.recipe, grids=())
    given, own = (calibrated(inexact(), recipe, others) for recipe in (found.recipe, choices))
    same = tb.quantizers(own, "activations")
    for path, each in tb.quantizers(given, "activations").items():
        assert each.scale == same[path].scale
        assert each.zero_point == same[path].zero_point


def test_other_grids_are_not_those_of_the_record(tmp_path: Path) -> None:
    found = quantized(inexact(), "onnxruntime", tmp_path, method="min-max")
    choices = replace(found.recipe, grids=())
    made = [
        tb.prepare(inexact(), None, (samples()[0],), settings=recipe, weight={"bits": 4})
        for recipe in (found.recipe, choices)
    ]
    for q in made:
        with torch.no_grad(), tb.calibrating(q):
            q(samples()[0])
    weights, same = (tb.quantizers(q, "weights") for q in made)
    assert all(torch.equal(each.scale, same[path].scale) for path, each in weights.items())


def test_rules_for_layers_give_the_same(tmp_path: Path) -> None:
    model = exact()
    rules = [
        ["body.0.conv", {"weight_bits": 4, "weight_method": "mse"}],
        ["head", {"activation_bits": 6, "per_channel": False, "method": "percentile:99"}],
        ["/body/body.1/Add", "float"],
        ["stem", {"symmetric": True}],
    ]
    found = quantized(model, "onnxruntime", tmp_path, method="min-max", settings=rules)
    q = calibrated(model, found.recipe)
    assert_same(of_module(q), of_graph(found), ulps=0)
    assert tb.quantizers(q)["body.0.conv.weight_fake_quant"].spec.hi == 7
    assert tb.quantizers(q)["head.weight_fake_quant"].spec.axis is None
    assert tb.quantizers(q)["x_fake_quant"].spec.symmetric


@pytest.mark.parametrize("norm", [False, True])
def test_float_layers_of_a_recipe_are_found(norm: bool, tmp_path: Path) -> None:
    """The exporter hides the names of weights with a folded batch norm; scopes remain."""
    model = inexact() if norm else exact()
    found = quantized(model, "onnxruntime", tmp_path, method="mse", keep_float=3)
    chosen = [rule.selector for rule in found.recipe.settings.rules]
    assert chosen
    assert_same(of_module(calibrated(model, found.recipe)), of_graph(found), ulps=0)


def test_a_recipe_file_brings_its_backend(tmp_path: Path) -> None:
    found = quantized(exact(), "tensorrt", tmp_path, method="mse")
    written = found.save(tmp_path / "out")
    path = next(p for p in written if p.name.endswith("_recipe.json"))
    q = calibrated(exact(), path)
    assert q.onnxq_backend == "tensorrt"
    assert_same(of_module(q), of_graph(found), ulps=0)
    tb.prepare(exact(), "tensorrt", (samples()[0],), settings=str(path))
    with pytest.raises(OptionError, match=r"recipe is for tensorrt.* given is vitis") as caught:
        tb.prepare(exact(), "vitis", (samples()[0],), settings=path)
    assert "leave the backend out" in caught.value.fix


def test_a_recipe_for_a_variant() -> None:
    q = tb.prepare(exact(), None, (samples()[0],), settings=Recipe("onnxruntime", "avx2"))
    assert q.onnxq_backend == "onnxruntime"
    assert "deploy with variant='avx2'" in str(q.onnxq_report)


def test_what_a_recipe_starts_is_trained_and_deployed(tmp_path: Path) -> None:
    found = quantized(exact(), "onnxruntime", tmp_path, method="mse", keep_float=1)
    q = calibrated(exact(), found.recipe)
    tb.enable_quantization(q)
    q.train()(samples()[0]).square().mean().backward()
    made = tb.deploy(q.eval(), (samples()[0],), tmp_path / "out")
    assert all(proof.passed for proof in made.proofs)
    again = tb.prepare(exact(), None, (samples()[0],), settings=found.recipe)
    again.load_state_dict(q.state_dict())
    assert_same(of_module(again), of_module(q), ulps=0)


def test_no_backend() -> None:
    with pytest.raises(OptionError, match="no backend is given"):
        tb.prepare(exact(), None, (samples()[0],), settings=[["head", "float"]])


def test_smoothing_is_not_done() -> None:
    recipe = Recipe("onnxruntime", smooth={"b": 0.5, "a": 0.4})
    with pytest.warns(UserWarning, match=r"smooths 2 tensors \('a' among them\).*smooth=False"):
        q = tb.prepare(exact(), None, (samples()[0],), settings=recipe)
    assert "smooths 2 tensors" in str(q.onnxq_report)


def prepared(settings: Any, **more: Any) -> dict[str, Any]:
    return tb.quantizers(
        tb.prepare(exact(), "openvino", (samples()[0],), settings=settings, **more)
    )


def test_rules_alone_leave_the_observers_of_the_backend() -> None:
    plain, made = prepared(None), prepared([["stem", {"method": "mse"}]])
    kinds = {path: type(each.observer).__name__ for path, each in made.items()}
    assert kinds.pop("x_fake_quant") == "ByMethod"
    assert all(kinds[path] == type(plain[path].observer).__name__ for path in kinds)


def test_rules_go_before_options_for_all() -> None:
    rules = Settings.of(
        [
            ["stem", {"bits": 4, "algorithm": "fixed"}],
            [nn.Linear, {"weight_bits": 3, "observer": "clip-std", "method": "mse"}],
            [Block, "float"],
        ]
    )
    made = prepared(rules, weight={"bits": 5, "observer": "mse"}, activation="pact")
    stem, head = made["stem.weight_fake_quant"], made["head.weight_fake_quant"]
    assert (stem.spec.hi, stem.algorithm, type(stem.observer).__name__) == (7, "fixed", "MSE")
    assert (head.spec.hi, head.algorithm, type(head.observer).__name__) == (3, "lsq", "ClipStd")
    assert (made["x_fake_quant"].spec.bits, made["x_fake_quant"].algorithm) == (4, "fixed")
    assert not [path for path in made if path.startswith("body.")]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (["haed", "float"], "settings: no layer matches 'haed'"),
        (["head", {"algorithm": "lsk"}], "no quantization algorithm 'lsk'"),
        (["head", {"observer": "msee"}], "no observer 'msee'"),
        (["head", {"method": "msee"}], "no calibration method 'msee'"),
        (["head", {"weight_method": "entropy"}], "no method 'entropy' for weights"),
        (["head", {"bits": 16}], "openvino has no weights of 16 bits"),
        (["head", "flaot"], "'flaot' is not a setting"),
    ],
)
def test_wrong_rules(rule: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        prepared([rule])
    assert caught.value.fix


def test_errors_name_the_tensor() -> None:
    with pytest.raises(OptionError, match="no weights of 16 bits") as caught:
        prepared([["head", {"weight_bits": 16}]])
    assert caught.value.__notes__ == ["in the quantizer of 'head.weight'"]


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        return self.two(y) if y.sum() > 0 else y


def test_rules_without_a_graph() -> None:
    rules = [["one", "float"], ["Linear", {"bits": 4, "method": "mse"}]]
    with pytest.warns(UserWarning, match="could not be traced"):
        q = tb.prepare(Untraceable(), "openvino", (torch.ones(2, 4),), settings=rules)
    made = tb.quantizers(q)
    assert {path.partition(".")[0] for path in made} == {"two"}
    assert {each.spec.bits for each in made.values()} <= {4}
    assert "ByMethod" in {type(each.observer).__name__ for each in made.values()}
