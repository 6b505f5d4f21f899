"""Fake quantization composed of elementary operators to the canonical form.

    x -> Div s -> Round -> Add z -> Clip lo, hi -> Sub z -> Mul s    FakeQuantize(x, s, z) of lo..hi

`onnxq.dialects.composed_chain` lists the spellings that are recognised. A chain on a constant is
evaluated. If the canonical form would give other values (the exporter divided the weight already,
or multiplied by 1/s), the weight is put on the grid first, which keeps the numbers the same.
Activations of spellings that round ties differently are read and noted.

Exporters that fold constants compute the chain of a weight and keep only the result: a float
weight on a grid whose scale is lost. If the weight itself proves a grid
(`onnxq.quant.grid_recovery`), that grid is used. The other weights stay unquantized and are named
in a note.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.dialects.composed_chain import Chain, ClipRange, chain_to, clip_range, scale_of
from onnxq.dialects.node_rewrite import Declined, attempt
from onnxq.edit import insert_at, new_values, producer, remove, users
from onnxq.graph import Model, domain_of
from onnxq.graph.constants import array
from onnxq.operators.broadcast_shape import per_channel, rank_of
from onnxq.operators.weight_axis import LINEAR_OPS, weight_axis
from onnxq.pass_ import Pass, Trace
from onnxq.quant.grid_recovery import recovered
from onnxq.quant.qparams import Array, QParams
from onnxq.storage.node_metadata import type_of_codes

Ties = defaultdict[str, list[str]]
"""Names of activations whose ties the source rounds differently, by the reason why it does."""


@dataclass(frozen=True)
class ReadComposed(Pass):
    """Read fake quantization written as Div, Round, Clip and Mul as FakeQuantize."""

    name: ClassVar[str] = "read-composed"
    dialect: ClassVar[str] = "composed (Div, Round, Clip, Mul)"
    exact: ClassVar[bool] = True

    def run(self, model: Model, trace: Trace) -> None:
        quantized: list[gs.Tensor] = []
        ties: Ties = defaultdict(list)
        for node in model.nodes("Mul", "Div"):
            chain = chain_to(node)
            if chain is not None:
                attempt(node, trace, partial(_read, node, chain, model, quantized, ties))
        note_ties(ties, trace)
        _folded_weights(quantized, model, trace)


def _read(node: gs.Node, chain: Chain, model: Model, quantized: list[gs.Tensor], ties: Ties) -> str:
    """Rewrite one chain. Returns what it became, or '' if it is not a quantizer."""
    codes = clip_range(chain)
    if not any(codes.bounded):
        return ""  # rounding to multiples of a number, nothing else
    if not all(codes.bounded):
        raise Declined(f"its codes have no {'upper' if codes.bounded[0] else 'lower'} bound")
    scale, exact = scale_of(chain)
    params = _params(node, chain, codes, scale)
    params.check_shape(chain.source.shape)
    source, value = chain.source, array(chain.source)
    if value is not None:
        made = chain.values(value)
        if chain.enter is None or not np.array_equal(params.fake(value), made):
            source = new_values(model, source, params.fake(made), chain.first)
    else:
        if codes.shifts_before_round:
            ties["the zero point is added before rounding"].append(source.name)
        if not exact:
            ties["the source multiplies by 1/scale, but FakeQuantize divides"].append(source.name)
    out = node.outputs[0]
    name = node.name or f"{out.name}.fake_quantize"
    remove(node, model)
    fake_quantize.make(model, source, out, params, node, name=name, dtype=np.float32)
    quantized.append(out)
    return f"{params.qtype}" + (" per channel" if params.axis is not None else "")


def _params(node: gs.Node, chain: Chain, codes: ClipRange, scale: Array) -> QParams:
    tensor = chain.source
    shaped = per_channel([scale, codes.zero_point], rank_of(tensor))
    if shaped is None:
        raise Declined(
            f"its scale has shape {list(scale.shape)}, which is neither per tensor nor per channel"
        )
    (scales, zero_point), axis = shaped
    lo, hi = codes.codes()
    if not codes.stated and lo < 0 and (lo < -128 or hi > 127) and hi - lo < 256:
        # Written without a zero point. Counted from the lowest code, the same grid has 8 bits.
        lo, hi, zero_point = 0, hi - lo, zero_point - lo
    if not (lo < hi and np.all((lo <= zero_point) & (zero_point <= hi))):
        raise Declined(f"its codes {lo}..{hi} do not contain the zero point")
    kind = type_of_codes(node, lo, hi)
    if kind is None:
        raise Declined(f"its codes {lo}..{hi} are not integers of 2 to 16 bits")
    return QParams(tensor.name, kind, scales, zero_point, axis=axis, lo=lo, hi=hi)


def note_ties(ties: Ties, trace: Trace) -> None:
    """Add one note for each reason."""
    for why, names in ties.items():
        trace.note(
            f"{_listed(names)}: {why}, so inputs half way between two codes, or within one float "
            "rounding of that, may have been rounded to the other neighbour there"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _folded_weights(quantized: list[gs.Tensor], model: Model, trace: Trace) -> None:
    """Quantize float weights that lie on a grid; name those of quantized data that do not."""
    unproven: list[str] = []
    done: set[int] = set()
    for data in quantized:
        for node, index in users(data):
            if index != 0 or domain_of(node) or node.op not in LINEAR_OPS:
                continue
            weight = node.inputs[1]
            value = array(weight)
            if value is None or producer(weight, FAKE_QUANTIZE) or id(weight) in done:
                continue
            done.add(id(weight))
            if _recover(weight, value, model):
                trace.rewrote(f"'{weight.name}'", "recovered the grid of its values")
            else:
                unproven.append(weight.name)
    if unproven:
        trace.note(
            f"{_listed(unproven)}: the inputs of these layers are quantized, but their weights "
            "are plain floats on no recognisable grid. If they were trained quantized, the "
            "exporter folded them, perhaps with a normalisation, and dropped the scales: export "
            "without constant folding (torch.onnx.export(..., optimize=False)) to keep them"
        )


def _recover(weight: gs.Tensor, value: Array, model: Model) -> bool:
    """Put a FakeQuantize after a weight whose values prove a grid."""
    uses = users(weight)
    layouts = [weight_axis(node, value.ndim) if index == 1 else None for node, index in uses]
    axes = {layout.axis for layout in layouts if layout is not None}
    if None in layouts or len(axes) != 1 or value.dtype != np.float32 or model.is_output(weight):
        return False
    params = recovered(weight.name, value, axes.pop())
    if params is None:
        return False
    insert_at(
        model,
        weight,
        lambda x, y, graph: fake_quantize.make(model, x, y, params, graph),
        uses,
        leaves=False,
    )
    return True


__all__ = ["ReadComposed"]
