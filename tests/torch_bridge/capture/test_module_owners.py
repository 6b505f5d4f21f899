"""Functions of a traced graph are named after the module whose code calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import fx, nn  # noqa: E402

from onnxq import load  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES  # noqa: E402
from torch_bridge.capture.module_owners import owner_of, with_owners  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, enable_quantization  # noqa: E402


@pytest.fixture(scope="module")
def resnet() -> tuple[nn.Module, tuple[Any, ...]]:
    architecture = ARCHITECTURES["resnet18"]
    args = architecture.inputs(2)
    model = prepare(architecture.build(), "onnxruntime", args).eval()
    with torch.no_grad(), calibrating(model):
        model(*args)
    enable_quantization(model)
    return model, args


def test_sums_are_named_after_their_block(resnet: Any, tmp_path: Path) -> None:
    model, args = resnet
    names = [n.name for n in load(export(model, args, tmp_path / "m.onnx")).nodes("Add")]
    assert names == [f"layer{i}.{j}/Add" for i in (1, 2, 3, 4) for j in (0, 1)]


def test_the_model_is_shared_and_unchanged(resnet: Any) -> None:
    model, args = resnet
    assert isinstance(model, fx.GraphModule)
    code, paths = model.code, [path for path, _ in model.named_modules()]
    modes = [m.training for m in model.modules()]
    made = with_owners(model)
    assert model.code == code
    assert [path for path, _ in model.named_modules()] == paths
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(made(*args), model(*args))
    mine = dict(made.named_parameters())
    assert all(mine[name] is value for name, value in model.named_parameters())


def test_other_models_are_handed_on() -> None:
    plain = nn.Linear(2, 2)
    assert with_owners(plain) is plain
    traced = fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    assert with_owners(traced) is traced


def test_only_calls_have_owners(resnet: Any) -> None:
    made = with_owners(resnet[0])
    assert owner_of(made, "layer1.0.conv1") == "layer1.0.conv1"
    assert owner_of(made, "onnxq_call_0") == "layer1.0"
