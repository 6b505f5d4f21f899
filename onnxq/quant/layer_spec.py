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
    spec = _with_symmetry(spec, chosen.symmetric, "activations", backend)
    return with_powers_of_two(spec, chosen.pot_scale, "activations", backend)


def weight_spec(spec: QSpec, chosen: LayerSettings, backend: str) -> QSpec:
    """The rules for the weight of a layer; `backend` is for messages."""
    if chosen.weight_bits is not None:
        spec = _with_bits(spec, chosen.weight_bits, "weights", backend)
    spec = _with_symmetry(spec, chosen.weight_symmetric, "weights", backend)
    spec = with_powers_of_two(spec, chosen.pot_scale, "weights", backend)
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


def _with_symmetry(spec: QSpec, symmetric: bool | None, what: str, backend: str) -> QSpec:
    if symmetric and not spec.symmetric:
        return symmetric_spec(spec, what, backend)
    if symmetric is False and spec.symmetric and not spec.logarithmic:
        name = "weight_symmetric" if what == "weights" else "symmetric"
        raise OptionError(f"{backend} has no zero points for {what}", fix=f"leave '{name}' out")
    return spec


def with_powers_of_two(spec: QSpec, asked: bool | None, what: str, backend: str) -> QSpec:
    """The same rules with scales that are powers of two, if that is asked for."""
    if asked is False and spec.power_of_two:
        raise OptionError(
            f"{backend} shifts instead of multiplying: scales of {what} are powers of two",
            fix="leave 'pot_scale' out",
        )
    if asked and spec.logarithmic:
        raise OptionError(
            f"{backend} has a logarithmic grid for {what}, whose scale is no power of two",
            fix="leave 'pot_scale' out",
        )
    return replace(spec, power_of_two=True) if asked else spec


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


__all__ = ["activation_spec", "symmetric_spec", "weight_spec", "with_powers_of_two"]
