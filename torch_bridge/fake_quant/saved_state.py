"""What a checkpoint holds of a quantizer beside its tensors: switches and text, as one tensor.

    switches    a byte 0 or 1 for each
    text        its codes ('int4 -7..7'), and in the first quantizer of a model the model's recipe

Scales of other codes mean other values, so a checkpoint is loaded only where the codes are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch_bridge.fake_quant.base import FakeQuantize

KEY = "_extra_state"
_ADVICE = (
    " as in the checkpoint. Prepare the model as that was prepared: prepare(..., "
    "settings=torch_bridge.recipe(checkpoint)). For the weights alone see load_float_state"
)


class Saved(NamedTuple):
    """The parts of a quantizer's extra state; text is '' in those that were saved without."""

    switches: bytes
    codes: str
    recipe: str


def pack(quantizer: FakeQuantize) -> Tensor:
    """A tensor, which any checkpoint format can hold."""
    flags = (getattr(quantizer, name) for name in quantizer.switches)
    text = f"{quantizer.spec.codes}\n{quantizer.recipe}"
    return torch.tensor([*flags, *text.encode()], dtype=torch.uint8)


def unpack(state: Tensor) -> Saved:
    """The parts again."""
    data = bytes(state.tolist())
    text = data.lstrip(b"\0\1")
    codes, _, recipe = text.decode(errors="replace").partition("\n")
    return Saved(data[: len(data) - len(text)], codes, recipe)


def fit(
    module: FakeQuantize,
    state_dict: dict[str, Any],
    prefix: str,
    _metadata: object,
    _strict: bool,
    _missing: list[str],
    _unexpected: list[str],
    errors: list[str],
) -> None:
    """Check the codes and make sizes agree before a checkpoint is loaded.

    A per-channel quantizer has one scale until it is calibrated. It takes the number of scales of
    the checkpoint. One scale for the whole tensor is the same grid as that scale for all channels.
    Many scales do not become one: torch reports the sizes.
    """
    extra = state_dict.get(prefix + KEY)
    codes = unpack(extra).codes if isinstance(extra, Tensor) else ""
    if codes and codes != module.spec.codes:
        found = f"{prefix.removesuffix('.')} has codes {module.spec.codes}, not {codes}"
        errors.append(found if any(_ADVICE in error for error in errors) else f"{found}{_ADVICE}")
    for name, current in module._own_tensors():
        saved = state_dict.get(prefix + name)
        if not isinstance(saved, Tensor) or saved.shape == current.shape:
            continue
        per_scale = name not in module.per_element
        if per_scale and not module.spec.per_channel and saved.numel() != 1:
            continue
        if per_scale and saved.numel() == 1 and current.numel() > 1:
            state_dict[prefix + name] = saved.reshape(()).expand(current.shape)
        else:
            module._set(name, torch.empty(saved.shape, dtype=current.dtype))
