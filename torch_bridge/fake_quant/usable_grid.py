"""What a quantizer's grid must be, so that a file can hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch_bridge.fake_quant.base import FakeQuantize


def grid_fault(quantizer: FakeQuantize) -> tuple[str, str] | None:
    """What is wrong with the grid that an algorithm of a user has, and the next step.

    Those of torch_bridge keep their grids; what data breaks in them is told by the table.
    """
    if not quantizer.is_own:
        return None
    spec, kind, name = quantizer.spec, type(quantizer).__name__, quantizer.algorithm
    scale, zero_point = quantizer.scale.detach(), quantizer.zero_point.detach()
    if quantizer.observer.ready and scale.numel() > 1:
        observed = quantizer.observer.min_val.shape
        if scale.shape != observed:
            return (
                f"({name}) has scales of shape {list(scale.shape)}, where the range that was "
                f"observed has {list(observed)}",
                f"keep the shape of the scale in set_range and refresh of {kind}",
            )
    usable = torch.isfinite(scale) & (scale > 0)
    if not bool(usable.all()):
        return (
            f"({name}) has the scale {scale[~usable].flatten()[0].item():g}, which is not positive "
            "and finite",
            f"keep it so in refresh() of {kind}, such as by .clamp(min=1e-8), or look for NaN in "
            "what it learns from",
        )
    codes = zero_point.double()
    fits = (codes == codes.round()) & (codes >= spec.lo) & (codes <= spec.hi)
    allowed = f"a whole number from {spec.lo} to {spec.hi}"
    if spec.symmetric:
        fits, allowed = codes == 0, "0, since the quantizer is symmetric"
    if not bool(fits.all()):
        return (
            f"({name}) has the zero point {codes[~fits].flatten()[0].item():g}, which must be "
            f"{allowed}",
            f"let refresh() of {kind} keep it so",
        )
    return None


__all__ = ["grid_fault"]
