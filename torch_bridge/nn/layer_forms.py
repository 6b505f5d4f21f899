"""Checks of the classes that a pattern names as the fused and the quantized form of a layer.

What such a class inherits shows before any model is prepared: whether it is a float or a quantized
form, whose `forward` runs, and whether there is an `apply_weights` for it to call.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from onnxq.errors import OptionError
from torch_bridge.nn.fused import FusedLayer
from torch_bridge.nn.fused_qat import FusedQatLayer
from torch_bridge.nn.qat import QatLayer


def check_forms(pattern: str, layers: tuple[type[nn.Module], ...], fused: Any, qat: Any) -> None:
    """Raise if the classes of a pattern cannot be what the pattern says they are.

    Args:
        pattern: its name, for messages.
        layers: the classes of the first link, for which the quantized form must have an operator.
        fused: the fused float form; None if there is none.
        qat: the quantized form.
    """
    for argument, kind in (("fused", fused), ("qat", qat)):
        if kind is None and argument == "fused":
            continue
        if not isinstance(kind, type) or not callable(getattr(kind, "from_float", None)):
            raise OptionError(
                f"pattern '{pattern}': {argument}={getattr(kind, '__name__', repr(kind))} is not a "
                "class with from_float",
                fix="derive it from torch_bridge.nn."
                + ("FusedLayer" if argument == "fused" else "QatLayer or FusedQatLayer"),
            )
    if issubclass(qat, FusedLayer):
        raise OptionError(
            f"pattern '{pattern}': qat={qat.__name__} is a float form",
            fix="derive `qat` from torch_bridge.nn.QatLayer or FusedQatLayer"
            + _swapped(fused is not None and issubclass(fused, QatLayer)),
        )
    if fused is not None and issubclass(fused, QatLayer):
        raise OptionError(
            f"pattern '{pattern}': fused={fused.__name__} is a quantized form",
            fix="derive `fused` from torch_bridge.nn.FusedLayer",
        )
    for kind, base in ((fused, FusedLayer), (qat, QatLayer)):
        if kind is not None and issubclass(kind, base):
            _check_order(pattern, kind, base)
    calls_operator = getattr(qat, "forward", None) in (QatLayer.forward, FusedQatLayer.forward)
    if calls_operator and not hasattr(qat, "apply_weights"):
        raise OptionError(
            f"pattern '{pattern}': {qat.__name__} has no apply_weights, which its forward calls",
            fix=f"define apply_weights(self, x, weight, bias) in {layers[0].__name__}: the layer "
            "with any weight and bias",
        )


def _check_order(pattern: str, kind: type[nn.Module], base: type[nn.Module]) -> None:
    """Refuse a class whose `forward` is that of the float layer, because it is an earlier base."""
    runs = next(each for each in kind.__mro__ if "forward" in vars(each))
    if runs is not kind and not issubclass(runs, base):
        first = next(b.__name__ for b in kind.__mro__ if b.__module__ == base.__module__)
        raise OptionError(
            f"pattern '{pattern}': {kind.__name__} runs the forward of {runs.__name__}, not that "
            f"of {first}",
            fix=f"{first} must come first among the bases of {kind.__name__}",
        )


def _swapped(both: bool) -> str:
    return "; `fused` and `qat` are swapped" if both else ""
