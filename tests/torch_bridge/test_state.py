"""What quantizers do, by part, and that context managers put it back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError, QParamsError, UnsupportedModelError  # noqa: E402
from tests.torch_bridge.hand_prepared import hand_prepared  # noqa: E402
from tests.torch_bridge.models import Conv1dNet  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import (  # noqa: E402
    calibrating,
    disable_all,
    enable_calibration,
    enable_quantization,
    evaluating,
    quantizers,
    quantizing,
    uninitialised_error,
)

X = (2, 4, 32)


@pytest.fixture
def model() -> nn.Module:
    return hand_prepared(Conv1dNet())


def flags(model: nn.Module) -> dict[str, set[tuple[bool, bool]]]:
    """(observing, quantizing) of weights and of activations."""
    return {
        part: {(q.observing, q.quantizing) for q in quantizers(model, part).values()}
        for part in ("weights", "activations")
    }


def calibrate(model: nn.Module) -> None:
    enable_calibration(model)
    model(torch.randn(X))


def test_quantizers_are_found_by_path_and_part(model: nn.Module) -> None:
    paths = set(quantizers(model))
    assert "body.3.weight_fake_quant" in paths
    assert set(quantizers(model, "weights")) == {
        p for p in paths if p.endswith("weight_fake_quant")
    }
    assert set(quantizers(model, "activations")) == {p for p in paths if "input" in p}
    assert len(paths) == 8


OFF, OBSERVES, QUANTIZES, BOTH = (False, False), (True, False), (False, True), (True, True)


@pytest.mark.parametrize(
    ("act", "options", "weights", "activations"),
    [
        (enable_calibration, {}, OBSERVES, OBSERVES),
        (enable_calibration, {"only": "weights"}, OBSERVES, OFF),
        (enable_calibration, {"only": "activations"}, OFF, OBSERVES),
        (enable_quantization, {}, QUANTIZES, QUANTIZES),
        (enable_quantization, {"only": "weights"}, QUANTIZES, OFF),
        (enable_quantization, {"only": "activations"}, OFF, QUANTIZES),
        (enable_quantization, {"observing": "all"}, BOTH, BOTH),
        (enable_quantization, {"observing": "weights"}, BOTH, QUANTIZES),
        (enable_quantization, {"observing": "activations"}, QUANTIZES, BOTH),
        (enable_quantization, {"only": "weights", "observing": "all"}, BOTH, OFF),
        (disable_all, {}, OFF, OFF),
    ],
)
def test_flags(
    model: nn.Module, act: Any, options: dict[str, str], weights: Any, activations: Any
) -> None:
    calibrate(model)
    act(model, **options)
    assert flags(model) == {"weights": {weights}, "activations": {activations}}


def test_outputs_follow_the_state(model: nn.Module) -> None:
    float_model = Conv1dNet()
    float_model.load_state_dict(model.state_dict(), strict=False)
    model.eval(), float_model.eval()
    x = torch.randn(X)
    expected = float_model(x)
    disable_all(model)
    assert torch.equal(model(x), expected)
    enable_calibration(model)
    assert torch.equal(model(x), expected)
    results: dict[str, Tensor] = {}
    for part in ("weights", "activations", None):
        enable_quantization(model, part)  # type: ignore[arg-type]
        results[str(part)] = model(x)
        assert not torch.equal(results[str(part)], expected)
        assert (results[str(part)] - expected).abs().max() < 0.05 * expected.abs().max()
    assert not torch.equal(results["weights"], results["None"])
    disable_all(model)
    assert torch.equal(model(x), expected)


def test_quantizing_before_calibration_names_every_quantizer(model: nn.Module) -> None:
    before = flags(model)
    with pytest.raises(
        QParamsError, match=r"8 quantizers have no range yet \(uninitialised\)"
    ) as e:
        enable_quantization(model)
    for path in quantizers(model):
        assert f"'{path}'" in e.value.what
    assert "with calibrating(model)" in e.value.fix
    assert flags(model) == before


def test_a_branch_that_never_ran_can_be_left_in_float(model: nn.Module) -> None:
    model.unused = hand_prepared(nn.Sequential(nn.Linear(2, 2)))
    calibrate(model)
    with pytest.raises(QParamsError, match=r"2 quantizers .* 'unused\.0\.weight_fake_quant'"):
        enable_quantization(model)
    enable_quantization(model, uninitialised="skip")
    on = {path for path, q in quantizers(model).items() if q.quantizing}
    assert on == {path for path in quantizers(model) if not path.startswith("unused")}


def test_many_uninitialised_quantizers_are_summed_up() -> None:
    model = hand_prepared(nn.Sequential(*[nn.Linear(2, 2) for _ in range(30)]))
    with pytest.raises(QParamsError, match=r"60 quantizers .* and 40 more"):
        enable_quantization(model)


def test_one_that_goes_on_observing_needs_no_calibration(model: nn.Module) -> None:
    enable_quantization(model, observing="all")
    y = model(torch.randn(X))
    assert torch.isfinite(y).all()
    enable_quantization(model)
    assert flags(model) == {"weights": {QUANTIZES}, "activations": {QUANTIZES}}


def test_context_managers_put_the_state_back(model: nn.Module) -> None:
    calibrate(model)
    enable_quantization(model, "weights")
    before = flags(model)
    with calibrating(model) as inside:
        assert inside is model
        assert flags(model) == {"weights": {OBSERVES}, "activations": {OBSERVES}}
        with quantizing(model, "activations"):
            assert flags(model) == {"weights": {OFF}, "activations": {QUANTIZES}}
        assert flags(model) == {"weights": {OBSERVES}, "activations": {OBSERVES}}
    assert flags(model) == before


def test_context_managers_put_the_state_back_after_a_failure(model: nn.Module) -> None:
    calibrate(model)
    before = flags(model)
    with pytest.raises(RuntimeError, match="in the block"), quantizing(model):
        raise RuntimeError("in the block")
    assert flags(model) == before
    uncalibrated = hand_prepared(Conv1dNet())
    disable_all(uncalibrated)
    with pytest.raises(QParamsError, match="uninitialised"), quantizing(uncalibrated):
        pytest.fail("nothing to quantize with")
    assert flags(uncalibrated) == {"weights": {OFF}, "activations": {OFF}}


def test_evaluating_restores_each_module_on_its_own(model: nn.Module) -> None:
    model.train()
    model.body[1].eval()  # BatchNorm frozen by the user
    before = {name: m.training for name, m in model.named_modules()}
    with evaluating(model):
        assert not any(m.training for m in model.modules())
    assert {name: m.training for name, m in model.named_modules()} == before


def test_flags_travel_with_the_checkpoint(model: nn.Module) -> None:
    calibrate(model)
    enable_quantization(model, "weights")
    other = hand_prepared(Conv1dNet())
    other.load_state_dict(model.state_dict())
    assert flags(other) == flags(model)
    x = torch.randn(X)
    assert torch.equal(other.eval()(x), model.eval()(x))


@pytest.mark.parametrize(
    ("value", "found"),
    [(float("nan"), "32 NaN and 0 infinite"), (float("inf"), "0 NaN and 32 infinite")],
)
def test_activations_that_are_no_numbers_are_named(value: float, found: str) -> None:
    x = torch.randn(X)
    model = prepare(Conv1dNet(), "onnxruntime", (x,)).eval()
    with torch.no_grad():
        model.get_submodule("body.3").bias[0] = value  # one channel of a layer in the middle
    with (
        pytest.raises(QParamsError, match=rf"observer of 'body\.3' got {found} of 512") as error,
        calibrating(model),
    ):
        model(x)
    assert "leave this tensor unquantized" in error.value.fix
    with pytest.raises(QParamsError, match="no range yet"):
        enable_quantization(model)


def test_nan_is_not_hidden_by_quantization(model: nn.Module) -> None:
    calibrate(model)
    enable_quantization(model)
    x = torch.randn(X)
    x[0, 0, 0] = float("nan")
    assert torch.isnan(model.eval()(x)[0]).all()
    assert torch.isfinite(model(x)[1]).all()


@pytest.mark.parametrize("act", [enable_calibration, enable_quantization, disable_all, quantizers])
def test_an_unprepared_model_is_refused(act: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="Conv1dNet has no quantizers") as error:
        act(Conv1dNet())
    assert "prepare" in error.value.fix


def test_unknown_parts_are_refused(model: nn.Module) -> None:
    with pytest.raises(OptionError, match="only='biases' names no part"):
        enable_calibration(model, "biases")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="observing='none'"):
        enable_quantization(model, observing="none")  # type: ignore[arg-type]


def test_wrong_types_are_told_with_the_parameter(tmp_path: Path) -> None:
    x = torch.randn(1, 3, 8, 8)
    q = tb.prepare(nn.Sequential(nn.Conv2d(3, 4, 3)), "tensorrt", (x,))
    calls: dict[str, Callable[[Any], object]] = {
        "backend": lambda wrong: tb.prepare(q, wrong or 7),
        "example_inputs": lambda wrong: tb.prepare(q, "tensorrt", wrong),
        "example_kwargs": lambda wrong: tb.prepare(q, "tensorrt", (x,), wrong or 7),
        "q": lambda wrong: tb.export(wrong, (x,), tmp_path / "q.onnx"),
        "args": lambda wrong: tb.deploy(q, wrong, tmp_path),
        "path": lambda wrong: tb.export(q, (x,), wrong),
        "folder": lambda wrong: tb.deploy(q, (x,), wrong),
        "source": lambda wrong: tb.recipe(wrong),
        "state": lambda wrong: tb.load_float_state(q, wrong),
    }
    for name, call in calls.items():
        for wrong in (None, 7, object()):
            with pytest.raises(TypeError, match=f"'{name}'"):
                call(wrong)
    named = {"deploy", "export", "load_float_state", "prepare", "recipe"}
    added = {name for name in tb.__all__ if name.startswith("register_") or not name.islower()}
    for name in set(tb.__all__) - named - added:
        with pytest.raises(TypeError, match="'model'"):
            getattr(tb, name)(None)


@pytest.mark.filterwarnings("ignore:prepare for")
def test_a_model_that_was_prepared_for_nothing_is_told_so() -> None:
    q = prepare(nn.Linear(8, 4), "tvm", torch.randn(2, 8))
    with pytest.raises(UnsupportedModelError, match="prepared for tvm, which has nothing of it"):
        enable_calibration(q)
    assert "nothing in the model is quantized for tvm" in list(q.onnxq_report.problems())


def test_one_quantizer_without_a_range_is_told_in_the_singular() -> None:
    assert uninitialised_error(["a"]).what.startswith("1 quantizer has no range yet")
