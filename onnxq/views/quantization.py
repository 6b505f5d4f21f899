"""What a quantization made and what it costs, as tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from onnxq.views import tables
from onnxq.views.screen import new_table, shown

if TYPE_CHECKING:
    from onnxq.workflows.quantize import Quantization
    from onnxq.workflows.quantizing.float_layers import TradeOff


_NAMED = 3
"""Float layers of which a row of the table tells the names."""


def quantization(found: Quantization, explain: bool) -> RenderableType:
    """The report of a quantization: its files and proofs, then its cost."""
    parts = [tables.conversion(found, explain)]
    if found.trade_off:
        parts.append(_trade_off(found.trade_off))
    if explain:
        rows = new_table("Ranges", "tensor", "comes from")
        for tensor, source in found.range_sources.items():
            rows.add_row(shown(tensor), shown(source))
        parts.append(rows)
    if found.noise is not None:
        unproven = bool(found.proofs) and not found.proven
        title = "Cost of quantization" + " (in the reference session)" * unproven
        rows = new_table(title, "output", "SQNR", right=("SQNR",))
        for name in found.noise.shares:
            rows.add_row(shown(name), _db(found.noise.decibels(name)))
        parts.append(rows)
        text = f"signal to noise {_db(found.noise.sqnr)} against the float model, measured on "
        text += _samples(found.measured)
        if unproven:
            text += " in the reference session; the files are unproven, and may be far worse"
        if found.latency is not None:
            text += f", {found.latency:.2f} x its time"
        if found.has_ranges:
            text = f"ranges by {found.recipe.method} from {_samples(found.samples)}; {text}"
        parts.append(shown(text))
    return Group(*parts)


def _trade_off(tried: list[TradeOff]) -> RenderableType:
    """The tried numbers of float layers; columns that would be empty are left out."""
    rated = any(each.metric is not None for each in tried)
    reached = any(each.reached for each in tried)
    columns = ["layers", "SQNR"] + ["metric"] * rated + ["goal"] * reached + ["which"]
    rows = new_table("Float layers", *columns, right=("layers",))
    for each in tried:
        metric = [f"{each.metric:g}" if each.metric is not None else ""] * rated
        goal = ["reached" if each.reached else ""] * reached
        more = ["…"] * (len(each.layers) > _NAMED)
        which = shown(", ".join([*each.layers[:_NAMED], *more]))
        rows.add_row(str(len(each.layers)), _db(each.sqnr), *metric, *goal, which)
    return rows


def _samples(count: int) -> str:
    return f"{count} sample{'s' * (count != 1)}"


def _db(value: float) -> str:
    return "exact" if value == math.inf else f"{value:.1f} dB"


__all__ = ["quantization"]
