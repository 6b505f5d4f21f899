"""The mode of a model's quantizers: observe ranges, quantize, both or neither.

    enable_calibration     observe, pass values through        run calibration data next
    enable_quantization    quantize with the ranges found      train, evaluate, export
    disable_all            neither: the float model

Each acts on all quantizers or, with `only`, on those of weights (biases included) or of
activations; the others are switched off, so that one kind can be looked at alone. The context
managers `calibrating` and `quantizing` restore the mode of every quantizer afterwards.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Literal, TypeAlias

import torch
from torch import nn

from onnxq.errors import OptionError, QParamsError, UnsupportedModelError
from onnxq.parsing.argument_types import takes
from torch_bridge.fake_quant import FakeQuantize

Part: TypeAlias = Literal["weights", "activations"]

_OF_PARAMETERS = ("weight_fake_quant", "bias_fake_quant")
_SHOWN = 20


@takes(model=nn.Module)
def quantizers(model: nn.Module, only: Part | None = None) -> dict[str, FakeQuantize]:
    """The quantizers of a prepared model by the path of their module."""
    if only not in (None, "weights", "activations"):
        raise OptionError(
            f"only='{only}' names no part of a model's quantizers",
            fix="choose 'weights' or 'activations', or leave it out for both",
        )
    found = {n: m for n, m in model.named_modules() if isinstance(m, FakeQuantize)}
    if not found:
        if target := getattr(model, "onnxq_backend", None):
            raise UnsupportedModelError(
                f"{type(model).__name__} has no quantizers: it was prepared for "
                f"{getattr(target, 'name', target)}, which has nothing of it on codes",
                fix="prepare it for another backend, or deploy the float model; "
                "print(model.onnxq_report) says what was left out",
            )
        raise UnsupportedModelError(
            f"{type(model).__name__} has no quantizers: it was not prepared",
            fix="call torch_bridge.prepare(model, backend=...) and use its result",
        )
    if only is None:
        return found
    return {n: q for n, q in found.items() if is_of_parameter(n) == (only == "weights")}


def is_of_parameter(path: str) -> bool:
    """Whether the quantizer at this path is that of a weight or bias."""
    return path.rpartition(".")[2] in _OF_PARAMETERS


@takes(model=nn.Module)
def enable_calibration(model: nn.Module, only: Part | None = None) -> None:
    """Observe ranges; quantize nothing."""
    chosen = quantizers(model, only)
    for name, quantizer in quantizers(model).items():
        _switch(quantizer, observing=name in chosen, quantizing=False)


@takes(model=nn.Module)
def enable_quantization(
    model: nn.Module,
    only: Part | None = None,
    *,
    observing: Part | Literal["all"] | None = None,
    uninitialised: Literal["error", "skip"] = "error",
) -> None:
    """Quantize with the ranges found so far.

    Args:
        model: a prepared and calibrated model.
        only: quantize one part; the other is switched off.
        observing: which part goes on following its ranges while it quantizes.
        uninitialised: 'error' if quantizers have seen no data, or 'skip' to leave them off, as
            for branches that never run.
    """
    chosen = quantizers(model, only)
    following = {} if observing is None else chosen
    if observing in ("weights", "activations"):
        following = {n: q for n, q in chosen.items() if n in quantizers(model, observing)}
    elif observing not in (None, "all"):
        raise OptionError(
            f"observing='{observing}' names no part of a model's quantizers",
            fix="choose 'weights', 'activations' or 'all'",
        )
    _adopt_ranges(chosen)
    # One that goes on observing finds its range with the first batch.
    blind = [n for n, q in chosen.items() if not q.initialised and n not in following]
    if blind and uninitialised == "error":
        raise uninitialised_error(blind)
    for name, quantizer in quantizers(model).items():
        on = name in chosen and name not in blind
        _switch(quantizer, observing=name in following, quantizing=on)


@takes(model=nn.Module)
def disable_all(model: nn.Module) -> None:
    """Neither observe nor quantize: the model computes in float."""
    for quantizer in quantizers(model).values():
        _switch(quantizer, observing=False, quantizing=False)


@takes(model=nn.Module)
@contextlib.contextmanager
def calibrating(model: nn.Module, only: Part | None = None) -> Iterator[nn.Module]:
    """Observe inside the block, then restore the mode of every quantizer."""
    with _restored(model):
        enable_calibration(model, only)
        yield model
    for module in model.modules():
        # After a forward pass alone, a sharded model (FSDP2) still has its parameters gathered,
        # and an optimizer made then would train these and not the shards.
        if callable(reshard := getattr(module, "reshard", None)):
            reshard()


@takes(model=nn.Module)
@contextlib.contextmanager
def quantizing(model: nn.Module, only: Part | None = None) -> Iterator[nn.Module]:
    """Quantize inside the block, then restore the mode of every quantizer."""
    with _restored(model):
        enable_quantization(model, only)
        yield model


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluate inside the block, then restore the mode of every module.

    Each has its own mode: BatchNorm layers may have been frozen in eval inside a training model.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, training in modes:
            module.training = training


def _adopt_ranges(chosen: dict[str, FakeQuantize]) -> None:
    """Give ranges to a copy made before calibration that has the buffers of a calibrated model."""
    anew = []
    for name, quantizer in chosen.items():
        learned = quantizer.scale.detach().clone()
        if quantizer.adopt_range() and not torch.equal(learned, quantizer.scale):
            anew.append(name)
    if anew:
        warnings.warn(
            f"{len(anew)} quantizers of a copy made before calibration start from the calibrated "
            f"ranges; what they learned or averaged until now is not used: {_listed(anew)}",
            UserWarning,
            stacklevel=4,
        )


def uninitialised_error(names: list[str]) -> QParamsError:
    """One error for all quantizers without a range."""
    return QParamsError(
        f"{len(names)} {'quantizer has' if len(names) == 1 else 'quantizers have'} no range yet "
        f"(uninitialised): {_listed(names)}",
        fix="run calibration data through the model within 'with calibrating(model):', then call "
        "enable_quantization(model); a branch that never runs can be left in float with "
        "enable_quantization(model, uninitialised='skip'). A copy (an average) made before "
        "calibration needs the buffers of the calibrated model: copy them, then enable it again",
    )


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


@contextlib.contextmanager
def _restored(model: nn.Module) -> Iterator[None]:
    before = [(q, q.observing, q.quantizing) for q in quantizers(model).values()]
    try:
        yield
    finally:
        for quantizer, observes, quantizes in before:
            _switch(quantizer, observing=observes, quantizing=quantizes)


def _switch(quantizer: FakeQuantize, *, observing: bool, quantizing: bool) -> None:
    quantizer.observing = observing
    quantizer.quantizing = quantizing
