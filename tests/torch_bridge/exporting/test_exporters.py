"""Both exporters leave the path of the module on every node, and say what they cannot do."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import onnx  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from onnxq.errors import OptionError, UnsupportedModelError  # noqa: E402
from tests.torch_bridge.hand_prepared import calibrated, hand_prepared  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES  # noqa: E402
from tests.torch_bridge.onnx_names import assert_names  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.exporting import exporters  # noqa: E402


def test_names_survive_flat_graph_modules(tmp_path: Path) -> None:
    """A traced graph calls 'layer1.0.conv1' directly: no module around it tells its path."""

    class Leaves(torch.fx.Tracer):
        def is_leaf_module(self, m: nn.Module, path: str) -> bool:
            return not list(m.named_children()) or hasattr(m, "weight_fake_quant")

    model = hand_prepared(ARCHITECTURES["resnet18"].build())
    args = ARCHITECTURES["resnet18"].inputs(2)
    calibrated(model, *args)
    traced = torch.fx.GraphModule(model, Leaves().trace(model.eval()))
    proto = onnx.load(export(traced, args, tmp_path / "m.onnx"))
    assert_names(proto, model)
    convs = [n.name for n in proto.graph.node if n.op_type == "Conv"]
    assert "layer1.0.conv1/Conv" in convs
    assert "layer4.1.conv2/Conv" in convs


def test_what_torch_cannot_export_is_said_in_one_line(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = hand_prepared(nn.Sequential(nn.Linear(4, 4)))

        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.eigvals(self.fc(x)).real

    model = calibrated(Odd(), torch.randn(4, 4))
    with pytest.raises(
        UnsupportedModelError, match=r"torch cannot export .*linalg_eigvals"
    ) as error:
        export(model, torch.randn(4, 4), tmp_path / "m.onnx")
    assert "dynamo" in error.value.fix


# torch's compiler instantiates autograd functions, which torch itself deprecates.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_model_compiled_in_place(tmp_path: Path) -> None:
    model = calibrated(hand_prepared(nn.Sequential(nn.Linear(3, 3))), torch.randn(2, 3))
    model.compile(backend="eager")
    with pytest.raises(UnsupportedModelError, match="compiled in place") as error:
        export(model, torch.randn(2, 3), tmp_path / "m.onnx")
    assert "torch.compile(model)" in error.value.fix


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(request: object) -> None:
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    dynamo = exporters.EXPORTERS["dynamo"]._replace(run=missing)
    monkeypatch.setitem(exporters.EXPORTERS, "dynamo", dynamo)
    model = calibrated(hand_prepared(nn.Sequential(nn.Linear(3, 3))), torch.randn(2, 3))
    with pytest.raises(OptionError, match="needs the package 'onnxscript'") as error:
        export(model, torch.randn(2, 3), tmp_path / "m.onnx", exporter="dynamo")
    assert "torchscript" in error.value.fix


def test_logging_of_torch_is_as_before(tmp_path: Path) -> None:
    import logging

    logger = logging.getLogger("torch.onnx")
    logger.setLevel(logging.INFO)
    model = calibrated(hand_prepared(nn.Sequential(nn.Linear(3, 3))), torch.randn(2, 3))
    export(model, torch.randn(2, 3), tmp_path / "m.onnx")
    assert logger.level == logging.INFO
    logger.setLevel(logging.NOTSET)
