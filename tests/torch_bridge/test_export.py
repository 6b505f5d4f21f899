"""Canonical ONNX from both exporters: valid, named, exact, and runnable as it is."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

import onnx  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from onnxq import load  # noqa: E402
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of  # noqa: E402
from onnxq.errors import OptionError, QParamsError, UnsupportedModelError  # noqa: E402
from onnxq.running.sessions import reference  # noqa: E402
from tests.torch_bridge.hand_prepared import calibrated, hand_prepared  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES, Conv1dNet  # noqa: E402
from tests.torch_bridge.onnx_names import assert_names  # noqa: E402
from torch_bridge.capture.flat_call import leaves  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.state import (  # noqa: E402
    disable_all,
    enable_calibration,
    enable_quantization,
    quantizers,
)


def ready(name: str, **how: Any) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A calibrated model with the arguments of one call."""
    architecture = ARCHITECTURES[name]
    model = hand_prepared(architecture.build(), **how)
    args, kwargs = architecture.inputs(2), architecture.kwargs(2)
    return calibrated(model, *args, **kwargs), args, kwargs


def in_torch(model: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> list[np.ndarray]:
    with torch.no_grad():
        return [t.numpy() for _, t in leaves(model.eval()(*args, **kwargs))]


def in_onnxruntime(file: Path, args: Any, kwargs: Mapping[str, Any]) -> list[np.ndarray]:
    session = reference(file)
    values = [t.numpy() for t in (*args, *kwargs.values())]
    return list(
        session.run(dict(zip([i.name for i in session.inputs], values, strict=True))).values()
    )


def assert_equal(file: Path, model: nn.Module, args: Any, kwargs: Mapping[str, Any] = {}) -> None:
    """Equal up to the rounding of sums: 1e-5 of the range is far below any step."""
    mine, theirs = in_torch(model, args, kwargs), in_onnxruntime(file, args, kwargs)
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5 * np.abs(a).max())


def batch_axes(args: Any, kwargs: Mapping[str, Any], names: list[str]) -> dict[str, dict[int, str]]:
    return {name: {0: "batch"} for name, _ in zip(names, (*args, *kwargs.values()), strict=True)}


# -- what is in the file ----------------------------------------------------------------------


@pytest.fixture
def silent(capfd: Any, caplog: Any) -> Iterator[None]:
    """The test warns, logs and prints nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert capfd.readouterr() == ("", "")
    assert [r for r in caplog.get_records("call") if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture(name: str, tmp_path: Path, silent: None) -> None:
    model, args, kwargs = ready(name)
    names = [i.name for i in _graph_inputs(model, args, kwargs, tmp_path)]
    file = export(
        model,
        args,
        tmp_path / "m.onnx",
        kwargs=kwargs,
        dynamic_axes=batch_axes(args, kwargs, names),
    )
    proto = onnx.load(file)
    onnx.checker.check_model(proto, full_check=True)
    assert {(o.domain, o.version) for o in proto.opset_import} == {("", 17), ("onnxq", 1)}
    assert len(proto.functions) == 1
    assert_equal(file, model, args, kwargs)
    other = ARCHITECTURES[name]
    assert_equal(file, model, other.inputs(5), other.kwargs(5))
    assert_names(proto, model)


def _graph_inputs(model: nn.Module, args: Any, kwargs: Any, folder: Path) -> Any:
    return onnx.load(export(model, args, folder / "plain.onnx", kwargs=kwargs)).graph.input


RANGES = [
    (-128, 127),
    (-127, 127),
    (-64, 63),
    (0, 255),
    (-32768, 32767),
    (-32767, 32767),
    (0, 65535),
    (-8, 7),
    (-7, 7),
    (0, 15),
    (-4, 3),
    (-3, 3),
    (0, 7),
    (-2, 1),
    (-1, 1),
    (0, 3),
]


@pytest.mark.parametrize("codes", RANGES, ids=lambda r: f"{r[0]}..{r[1]}")
def test_every_range(codes: tuple[int, int], tmp_path: Path) -> None:
    model, args, _ = ready("conv1d", weight=codes, activation=codes)
    file = export(model, args, tmp_path / "m.onnx")
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert_equal(file, model, args)
    made = load(file)
    wide = codes[1] - codes[0] > 255
    assert made.opset == (21 if wide else 17)
    modules = quantizers(model)
    for node in made.nodes(FAKE_QUANTIZE):
        params, mine = params_of(node), modules[node.name].qparams("t")
        assert (params.lo, params.hi, params.axis) == (*codes, mine.axis)
        assert np.array_equal(params.scale, mine.scale)
        assert np.array_equal(params.zero_point, mine.zero_point)
        if params.axis is None:
            assert params.scale.shape == ()


# -- arguments --------------------------------------------------------------------------------


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(
        self, batch: dict[str, Any], factor: float, *, mask: Tensor, bias: Any = None
    ) -> Any:
        y = self.fc(batch["x"] + batch["more"][0]) * factor * mask
        return {"y": y if bias is None else y + bias, "pair": (y, y + 1)}


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_nested_and_keyword_only_arguments(exporter: Any, tmp_path: Path) -> None:
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")
    model = hand_prepared(Keywords())
    args = ({"x": torch.randn(2, 3), "more": [torch.randn(2, 3)], "flag": True}, 2.0)
    kwargs = {"mask": torch.ones(3)}
    calibrated(model, *args, **kwargs)
    file = export(model, args, tmp_path / "m.onnx", kwargs=kwargs, exporter=exporter)
    session = reference(file)
    assert [i.name for i in session.inputs] == ["batch.x", "batch.more.0", "mask"]
    assert [o.name for o in session.outputs] == ["y", "pair.0", "pair.1"]
    flat = (args[0]["x"], args[0]["more"][0])
    for a, b in zip(in_torch(model, args, kwargs), in_onnxruntime(file, flat, kwargs), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-5)


def test_names_can_be_given(tmp_path: Path) -> None:
    model, args, _ = ready("siamese")
    file = export(
        model, args, tmp_path / "m.onnx", input_names=["a", "b"], output_names=["diff", "both"]
    )
    session = reference(file)
    assert [i.name for i in session.inputs] == ["a", "b"]
    assert [o.name for o in session.outputs] == ["diff", "both"]


def test_axes_can_be_listed_without_names(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    proto = onnx.load(export(model, args, tmp_path / "m.onnx", dynamic_axes={"x": [0]}))
    (x,) = proto.graph.input
    assert x.type.tensor_type.shape.dim[0].dim_param == "x_dim_0"


@pytest.mark.parametrize(
    ("exporter", "opset"),
    [*(("torchscript", opset) for opset in (15, 17, 20, 21, 24)), ("dynamo", 18), ("dynamo", 21)],
)
def test_opset(exporter: Any, opset: int, tmp_path: Path) -> None:
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")
    model, args, _ = ready("conv1d")
    file = export(model, args, tmp_path / "m.onnx", opset=opset, exporter=exporter)
    assert load(file).opset == opset
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert_equal(file, model, args)


def test_modes_are_restored(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    model.train()
    model.body[1].eval()
    before = {name: m.training for name, m in model.named_modules()}
    values = {name: value.clone() for name, value in model.state_dict().items()}
    export(model, args, tmp_path / "m.onnx")
    assert {name: m.training for name, m in model.named_modules()} == before
    assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())


def test_one_tensor_needs_no_tuple(tmp_path: Path) -> None:
    model, (x,), _ = ready("conv1d")
    file = export(model, x, str(tmp_path / "m.onnx"))
    assert file == tmp_path / "m.onnx"
    assert_equal(file, model, (x,))


def test_a_part_may_stay_float(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    enable_quantization(model, "weights")
    file = export(model, args, tmp_path / "m.onnx")
    fakes = {n.name for n in load(file).nodes(FAKE_QUANTIZE)}
    assert fakes == set(quantizers(model, "weights"))
    assert_equal(file, model, args)


@pytest.mark.parametrize(
    "wrapper",
    [nn.DataParallel, partial(torch.compile, backend="eager")],
    ids=["parallel", "compiled"],
)
def test_wrappers_are_looked_into(wrapper: Any, tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    file = export(wrapper(model), args, tmp_path / "m.onnx")
    assert "body.0/Conv" in {n.name for n in load(file).nodes("Conv")}


# -- dynamo -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_dynamo_writes_the_same(name: str, tmp_path: Path, silent: None) -> None:
    pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")
    model, args, kwargs = ready(name)
    names = [i.name for i in _graph_inputs(model, args, kwargs, tmp_path)]
    file = export(
        model,
        args,
        tmp_path / "m.onnx",
        kwargs=kwargs,
        exporter="dynamo",
        dynamic_axes=batch_axes(args, kwargs, names),
    )
    proto = onnx.load(file)
    onnx.checker.check_model(proto, full_check=True)
    assert {(o.domain, o.version) for o in proto.opset_import} == {("", 18), ("onnxq", 1)}
    assert_names(proto, model, merged=True)
    assert_equal(file, model, args, kwargs)
    other = ARCHITECTURES[name]
    assert_equal(file, model, other.inputs(5), other.kwargs(5))
    script = onnx.load(export(model, args, tmp_path / "s.onnx", kwargs=kwargs))
    assert _quantizers(proto) <= _quantizers(script)
    assert {q[1:] for q in _quantizers(proto)} == {q[1:] for q in _quantizers(script)}


def _quantizers(proto: onnx.ModelProto) -> set[tuple[str, bytes, bytes]]:
    values = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    return {
        (n.name, values[n.input[1]].tobytes(), values[n.input[2]].tobytes())
        for n in proto.graph.node
        if n.op_type == "FakeQuantize"
    }


@pytest.mark.parametrize("codes", [(0, 65535), (-2, 1)], ids=str)
def test_dynamo_ranges(codes: tuple[int, int], tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")
    model, args, _ = ready("conv1d", weight=codes, activation=codes)
    file = export(model, args, tmp_path / "m.onnx", exporter="dynamo")
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert_equal(file, model, args)


# -- bad input --------------------------------------------------------------------------------


def test_an_unprepared_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="Conv1dNet has no quantizers") as error:
        export(Conv1dNet(), torch.randn(2, 4, 32), tmp_path / "m.onnx")
    assert "prepare" in error.value.fix
    assert not list(tmp_path.iterdir())


def test_a_scale_that_training_lost(tmp_path: Path) -> None:
    """One NaN in a batch makes every parameter NaN with the next step."""
    model, args, _ = ready("conv1d")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = args[0].clone()
    x[0, 0, 0] = float("nan")
    model(x).square().mean().backward()
    optimizer.step()
    with pytest.raises(QParamsError, match="scale nan is not a positive finite number") as error:
        export(model, args, tmp_path / "m.onnx")
    assert "tensor '" in error.value.what
    assert not list(tmp_path.iterdir())


def test_quantizers_that_observe(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    enable_calibration(model)
    with pytest.raises(UnsupportedModelError, match="8 of 8 quantizers still observe"):
        export(model, args, tmp_path / "m.onnx")


def test_quantizers_that_are_off(tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    disable_all(model)
    with pytest.raises(UnsupportedModelError, match="none of the 8 quantizers is on") as caught:
        export(model, args, tmp_path / "m.onnx")
    assert caught.value.fix.startswith("call enable_quantization")


def test_quantizers_that_were_never_calibrated(tmp_path: Path) -> None:
    model = hand_prepared(Conv1dNet())
    disable_all(model)
    with pytest.raises(UnsupportedModelError, match="none of the 8 quantizers is on") as caught:
        export(model, torch.randn(2, 4, 32), tmp_path / "m.onnx")
    assert caught.value.fix.startswith("calibrate it first")


def test_quantizers_without_a_range(tmp_path: Path) -> None:
    model = hand_prepared(Conv1dNet())
    for one in quantizers(model).values():
        one.quantizing = True
    with pytest.raises(QParamsError, match=r"8 quantizers have no range yet \(uninitialised\)"):
        export(model, torch.randn(2, 4, 32), tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("options", "message", "fix"),
    [
        ({"exporter": "dynami"}, "no ONNX exporter 'dynami'", "'dynamo'"),
        ({"opset": 13}, "opset 13", "15 to 26"),
        ({"opset": 99}, "opset 99", "15 to 26"),
        ({"opset": 17, "exporter": "dynamo"}, "opset 17 .* dynamo", "18 to 26"),
        ({"input_names": ["a", "b"]}, r"2 input names \(a, b\) were given for 1", "one name"),
        ({"output_names": []}, "0 output names", "one name"),
        ({"dynamic_axes": {"y": {0: "n"}}}, "names 'y'", "'x'|choose from"),
    ],
)
def test_bad_options(options: Any, message: str, fix: str, tmp_path: Path) -> None:
    model, args, _ = ready("conv1d")
    with pytest.raises(OptionError, match=message) as error:
        export(model, args, tmp_path / "m.onnx", **options)
    assert error.match(fix)
    assert not list(tmp_path.iterdir())
