"""Declares torchvision's own operators, which its CPU-less builds cannot load.

torchvision imports without its compiled library only if these operators exist. No network here
calls them.
"""

from __future__ import annotations

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
_SIGNATURES = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def declare() -> None:
    """Declare the operators; call this before importing torchvision."""
    for signature in _SIGNATURES:
        if not hasattr(torch.ops.torchvision, signature.partition("(")[0]):
            _LIBRARY.define(signature)
