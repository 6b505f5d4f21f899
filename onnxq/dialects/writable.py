"""Quantizers that a dialect cannot express: all are found first, then refused together."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_graphsurgeon as gs

from onnxq.errors import cannot_write
from onnxq.operators.broadcast_shape import rank_of, spread
from onnxq.quant.qparams import QParams


def check_writable(dialect: str, found: Iterable[tuple[QParams, str]], *, fix: str) -> None:
    """Raise one error for all quantizers that have a reason against them; '' is none."""
    problems = [f"'{params.tensor}' ({params.role}): {why}" for params, why in found if why]
    if problems:
        raise cannot_write(dialect, problems, fix=fix)


def no_plain_grid(params: QParams) -> str:
    """Why a grid is not one of integers with a scale per tensor or channel; '' if it is."""
    if params.qtype.floating:
        return f"its codes are {params.qtype}"
    return "it has one scale per block" if params.block else ""


def no_broadcast(params: QParams, tensor: gs.Tensor) -> str:
    """Why the scales of `tensor` cannot be shaped to broadcast against it; '' if they can."""
    if spread(params.scale, params.axis, rank_of(tensor)) is None:
        return "its rank is unknown (run 'infer-shapes' first)"
    return ""
