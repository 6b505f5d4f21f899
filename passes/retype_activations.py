"""Move activation codes between signed and unsigned types, without changing a value.

    int8  -> uint8     q + 128, z + 128, the range alike
    uint8 -> int8      q - 128, z - 128, the range alike

A tensor that is never negative (after Relu, Sigmoid, Clip from 0 ...) uses no code below its zero
point. If the new type is unsigned, its codes are counted from there instead, so that the zero point
is the lowest code. A quantizer then clamps just as Relu does, and runtimes fuse Conv + Relu. Files
that specify a number of bits and no bounds need `whole`: there a zero point of 135 stays, since
only 0..120 would be left of 0..255.

Inputs of one operator that share a grid, such as those of a Concat, share none any more if only
some of them are never negative. Targets that demand one grid there need `together`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.analysis.accumulator_bounds import input_quantizer
from onnxq.analysis.signs import Signs
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of, set_params
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from passes.fit_grids import shown


@dataclass(frozen=True)
class RetypeActivations(Pass):
    """Store activations as uint8 (zero point lowest after Relu) or int8; values stay the same."""

    name: ClassVar[str] = "retype-activations"
    exact: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True

    to: Literal["uint8", "int8"] = "uint8"
    whole: bool = False
    """Whether to count from the zero point only if all codes of some number of bits are left."""

    together: bool = False
    """Whether inputs of one operator that share a grid still do: they are counted from the zero
    point only if none of them is ever negative."""

    def run(self, model: Model, trace: Trace) -> None:
        signs = Signs()
        held = self._held(model, signs) if self.together else set()
        for node in model.nodes(FAKE_QUANTIZE):
            if is_constant(node.inputs[0]):
                continue
            params = params_of(node)
            if params.qtype.floating or params.qtype.bits > 8:
                trace.skip(node, f"its codes are {params.qtype}, which do not fit {self.to}")
                continue
            new = self._retyped(params, node, signs, narrow=id(node) not in held)
            if new is not None:
                set_params(model, node, new)
                trace.rewrote(node, f"{shown(params)} -> {shown(new)}")

    def _held(self, model: Model, signs: Signs) -> set[int]:
        """The quantizers that keep their zero point since others with the same grid do."""
        known: dict[int, gs.Node | None] = {}
        groups = [_equal(node, known) for node in model.nodes()]
        groups = [group for group in groups if len(group) > 1]
        held: set[int] = set()
        for group in groups:
            held |= {id(n) for n in group if not signs.never_negative(n.inputs[0])}
        size = -1
        while len(held) > size:  # a quantizer may be in several groups
            size = len(held)
            for group in groups:
                ids = {id(node) for node in group}
                held |= ids if held & ids else set()
        return held

    def _retyped(
        self, params: QParams, node: gs.Node, signs: Signs, *, narrow: bool
    ) -> QParams | None:
        kind = qtype(self.to)
        assert params.lo is not None and params.hi is not None
        shift = 128 * (params.qtype.signed - kind.signed)
        lo, hi, zero = params.lo + shift, params.hi + shift, params.zero_point + shift
        if narrow and not kind.signed and zero.size == 1 and lo < int(zero) < hi:
            top = hi - int(zero)
            partial = self.whole and top & (top + 1)  # not all codes of some number of bits
            if not partial and signs.never_negative(node.inputs[0]):
                lo, hi, zero = 0, top, np.zeros_like(zero)
        if shift == 0 and (lo, hi) == (params.lo, params.hi):
            return None
        return params.with_(qtype=kind, lo=lo, hi=hi, zero_point=zero)


def _equal(node: gs.Node, known: dict[int, gs.Node | None]) -> list[gs.Node]:
    """The quantizers of all activations that an operator reads, if they have one grid."""
    found = [
        input_quantizer(each, known) for each in node.inputs if each.name and not is_constant(each)
    ]
    quantizers = [each for each in found if each is not None and not is_constant(each.inputs[0])]
    grids = {params_of(each).grid_key() for each in quantizers}
    return quantizers if len(grids) == 1 else []
