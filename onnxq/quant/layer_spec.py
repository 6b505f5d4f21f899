"""The rules for one quantizer: those of a target, with what the settings of a layer change."""

from __future__ import annotations

from dataclasses import replace

from onnxq.errors import OptionError
from onnxq.quant.qtypes import QTYPES
from onnxq.quant.scheme import QSpec
from onnxq.quant.settings import LayerSettings


def activation_spec(spec: QSpec, chosen: LayerSettings, backend: str) -> QSpec:
    """The rules for what a layer reads; `backend` is for messages."""
    if chosen.activation_bits is not None:
        spec = _with_bits(spec, chosen.activation_bits, "activations", backend)
    if chosen.symmetric and not spec.symmetric:
        return symmetric_spec(spec, "activations", backend)
    if chosen.symmetric is False and spec.symmetric and not spec.logarithmic:
        raise OptionError(
            f"{backend} has no zero points for activations", fix="leave 'symmetric' out"
        )
    return spec


def weight_spec(spec: QSpec, chosen: LayerSettings, backend: str) -> QSpec:
    """The rules for the weight of a layer; `backend` is for messages."""
    if chosen.weight_bits is not None:
        spec = _with_bits(spec, chosen.weight_bits, "weights", backend)
    if chosen.per_channel is None:
        return spec
    if chosen.per_channel and not spec.per_channel:
        raise OptionError(
            f"{backend} has one scale per tensor for weights", fix="leave per_channel out"
        )
    return replace(spec, per_channel=chosen.per_channel)


def _with_bits(spec: QSpec, bits: int, what: str, backend: str) -> QSpec:
    if spec.logarithmic:
        return spec
    changed = spec.with_bits(bits)
    if changed.types[0] not in spec.types and bits > min(QTYPES[t].bits for t in spec.types):
        raise OptionError(
            f"{backend} has no {what} of {bits} bits ({', '.join(spec.types)})",
            fix="choose other bits, or 'float' for these layers",
        )
    return changed


def symmetric_spec(spec: QSpec, what: str, backend: str) -> QSpec:
    """The same rules with zero point 0 and a signed type; `what` and `backend` are for messages.

    Zero point 0 of an unsigned type would clip all negative values.
    """
    if not any(QTYPES[name].signed for name in spec.types):
        raise OptionError(
            f"{backend} has no signed type for {what}, so they cannot be symmetric",
            fix="leave 'symmetric' out",
        )
    return replace(spec, symmetric=True).signed()


__all__ = ["activation_spec", "symmetric_spec", "weight_spec"]
