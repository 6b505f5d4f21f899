"""From torch to the target's files, with the proof."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq import graph  # noqa: E402
from onnxq.backend import find_backend  # noqa: E402
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE  # noqa: E402
from onnxq.errors import (  # noqa: E402
    BackendError,
    OptionError,
    SaveError,
    UnsupportedModelError,
    VerifyError,
)
from onnxq.running import sessions  # noqa: E402
from onnxq.running.sessions import reference  # noqa: E402
from onnxq.workflows.convert import convert  # noqa: E402
from tests.torch_bridge.hand_prepared import calibrated, hand_prepared  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES, Conv1dNet  # noqa: E402
from torch_bridge.deploy import deploy  # noqa: E402
from torch_bridge.exporting import exporters  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, enable_quantization  # noqa: E402


def ready(name: str, **how: Any) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    architecture = ARCHITECTURES[name]
    model = hand_prepared(architecture.build(), **how)
    args, kwargs = architecture.inputs(4), architecture.kwargs(4)
    return calibrated(model, *args, **kwargs), args, kwargs


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_is_proven(name: str, tmp_path: Path) -> None:
    architecture = ARCHITECTURES[name]
    args, kwargs = architecture.inputs(4), architecture.kwargs(4)
    model = prepare(architecture.build(), "onnxruntime", args, kwargs).eval()
    with torch.no_grad(), calibrating(model):
        model(*args, **kwargs)
    enable_quantization(model)
    conversion = deploy(model, args, tmp_path, kwargs=kwargs)
    assert conversion.proven
    last = conversion.proofs[-1]
    assert last.what == "model.onnx (torch)"
    for output in last.report.outputs:
        assert output.unit == "steps"
        assert output.max <= 1.0
        assert output.moved <= 0.001
    assert [f.name for f in conversion.files] == ["model.onnx", "model_qdq.onnx"]
    assert all(f.is_file() for f in conversion.files)


@pytest.mark.parametrize(
    ("weight", "activation"),
    [((-128, 127), (0, 65535)), ((-8, 7), (0, 15)), ((-4, 3), (0, 7)), ((-2, 1), (0, 3))],
    ids=["w8a16", "w4a4", "w3a3", "w2a2"],
)
def test_narrow_and_wide_codes_deploy(weight: Any, activation: Any, tmp_path: Path) -> None:
    model, args, _ = ready("conv1d", weight=weight, activation=activation)
    assert deploy(model, args, tmp_path, backend="onnxruntime").proven


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_the_example_runs_once_besides_the_trace_of_the_exporter(
    exporter: Any, tmp_path: Path
) -> None:
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")
    model, args, _ = ready("conv1d")
    traced: list[bool] = []

    def count(*_: Any) -> None:
        traced.append(torch.jit.is_tracing() or torch.compiler.is_compiling())

    model.head.register_forward_hook(count)
    deploy(model, args, tmp_path, backend="onnxruntime", exporter=exporter)
    assert traced.count(False) == 1


def test_the_backend_is_the_one_it_was_prepared_for(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d", activation=(-127, 127))
    model.onnxq_backend = "tensorrt"
    conversion = deploy(model, args, tmp_path, stem="net")
    assert conversion.backend.name == "tensorrt"
    assert all(f.name.startswith("net") for f in conversion.files)


def test_a_backend_value_is_deployed_for_as_it_was_given(tmp_path: Path) -> None:
    """Not the installed one of the same name: this one writes a file less."""
    whole = find_backend("tensorrt")
    own = dataclasses.replace(whole, outputs=whole.outputs[:1])
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
    x = torch.randn(2, 3, 8, 8)
    q = prepare(model, own, (x,))
    for made in (q, copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert made.onnxq_backend == own
    with calibrating(q):
        q(x)
    enable_quantization(q)
    conversion = deploy(q, (x,), tmp_path)
    assert conversion.backend == own
    assert len(conversion.files) == 2


def test_open_axes_and_names_reach_the_files(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    conversion = deploy(
        model,
        args,
        tmp_path,
        backend="onnxruntime",
        input_names=["sound"],
        output_names=["word"],
        dynamic_axes={"sound": {0: "n"}},
        opset=21,
    )
    assert conversion.notes == []
    session = reference(conversion.files[1])
    x = np.zeros((7, 4, 32), np.float32)
    assert session.run({"sound": x})["word"].shape == (7, 5)


class Tampered(nn.Module):
    """Computes something else when exported: what a proof is for."""

    def __init__(self) -> None:
        super().__init__()
        self.net = hand_prepared(Conv1dNet())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x * (1.5 if torch.onnx.is_in_onnx_export() else 1.0))


def test_a_failed_proof_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    x = torch.randn(4, 4, 32)
    model = calibrated(Tampered(), x)
    with pytest.raises(
        VerifyError, match=r"\(torch\): 'net.body.0.input_fake_quant' is off by .* \(steps\)"
    ) as error:
        deploy(model, x, tmp_path, backend="onnxruntime")
    assert "the first quantizer to differ is 'net.body.0.input_fake_quant'" in error.value.what
    assert [f.name for f in tmp_path.iterdir()] == ["model.onnx"]
    conversion = deploy(model, x, tmp_path, backend="onnxruntime", strict=False)
    assert not conversion.proven
    assert [p.report.passed for p in conversion.proofs][-1] is False
    assert (tmp_path / "model_qdq.onnx").is_file()


def test_without_a_backend(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    with pytest.raises(OptionError, match="does not say which backend"):
        deploy(model, args, tmp_path)
    with pytest.raises(OptionError, match="'onnxruntim'"):
        deploy(model, args, tmp_path, backend="onnxruntim")


def test_the_model_runs_once_beside_torchs_exporter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, args, _ = ready("conv1d")
    traced: list[bool] = []
    model.register_forward_pre_hook(lambda *_: traced.append(torch.jit.is_tracing()))
    loaded: list[str] = []
    load = graph.load

    def counted(path: Path) -> graph.Model:
        loaded.append(Path(path).name)
        return load(path)

    monkeypatch.setattr(graph, "load", counted)
    monkeypatch.setitem(inspect.unwrap(convert).__globals__, "load", counted)
    deploy(model, args, tmp_path, backend="onnxruntime")
    assert traced == [False, True]
    assert loaded == ["exported.onnx", "model.onnx"], "each file is read once, not by convert again"


def test_weights_beside_the_exported_file_outlive_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models over 2 GB: torch leaves their weights in the folder that it writes to."""

    def with_data(which: Any, request: Any) -> None:
        run(which, request)
        onnx.save(
            onnx.load(request.file), request.file, save_as_external_data=True, size_threshold=0
        )

    run = exporters.run
    monkeypatch.setattr(exporters, "run", with_data)
    model, args, _ = ready("conv1d")
    conversion = deploy(model, args, tmp_path, backend="onnxruntime")
    assert conversion.proven
    assert (tmp_path / "model.onnx.data").is_file()
    weights = [node.inputs[0] for node in conversion.source.nodes(FAKE_QUANTIZE)]
    assert any(isinstance(w, gs.Constant) and w.values.any() for w in weights)


def test_codes_the_target_does_not_take(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")  # activations with zero points
    with pytest.raises(BackendError, match="not supported by tensorrt"):
        deploy(model, args, tmp_path, backend="tensorrt")


def test_codes_are_moved_where_that_is_allowed(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    done = deploy(model, args, tmp_path, backend="tensorrt", allow_requantize=True)
    assert done.proven
    assert done.change is not None
    assert done.cost is not None
    assert done.cost.worst is not None
    assert done.cost.worst.max > 0
    assert (tmp_path / "model_qdq.onnx").is_file()


def test_another_way_to_deploy(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    done = deploy(model, args, tmp_path, backend="onnxruntime", variant="qoperator")
    assert (done.variant, done.proven) == ("qoperator", True)
    assert [f.name for f in done.files] == ["model.onnx", "model_qoperator.onnx"]
    with pytest.raises(OptionError, match="no variant 'qop'"):
        deploy(model, args, tmp_path, backend="onnxruntime", variant="qop")


def test_a_refused_session_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sessions.session.__globals__, "deployed", lambda source, taps=(): sessions.reference(source)
    )
    model, args, _ = ready("conv1d")
    with pytest.raises(VerifyError, match="onnxruntime refuses the deployed session"):
        deploy(model, args, tmp_path, backend="onnxruntime")


def test_logarithmic_codes_are_converted_for_targets_that_have_them(tmp_path: Path) -> None:
    x = torch.randn(2, 4, 32)
    model = calibrated(prepare(Conv1dNet(), "nnie", (x,)), x)
    with pytest.raises(BackendError, match=r"'x' \(activation\): a logarithmic grid"):
        deploy(model, x, tmp_path, backend="onnxruntime")
    assert [f.name for f in tmp_path.iterdir()] == ["model.onnx"]
    assert deploy(model, x, tmp_path).proven
    assert (tmp_path / "model_gfpq_param_dict.json").exists()


def test_an_unprepared_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="has no quantizers"):
        deploy(Conv1dNet(), torch.randn(2, 4, 32), tmp_path, backend="onnxruntime")


def test_inputs_that_the_model_does_not_take(tmp_path: Path) -> None:
    model, _, _ = ready(next(iter(ARCHITECTURES)))
    with pytest.raises(OptionError, match=r"fails on the inputs: \w+Error") as caught:
        deploy(model, (torch.zeros(1, 2, 3),), tmp_path / "out", backend="tensorrt")
    assert "as those of prepare" in caught.value.fix


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    model, args, kwargs = ready(next(iter(ARCHITECTURES)))
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(SaveError, match="taken is a file"):
        deploy(model, args, tmp_path / "taken", kwargs=kwargs, backend="tensorrt")
