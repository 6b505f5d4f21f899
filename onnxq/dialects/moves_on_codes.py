"""Operators that move or select elements, taken from codes to real values.

    Q -> MaxPool -> DQ      Q -> DQ -> MaxPool -> Q -> DQ

Moving elements commutes with dequantizing, and so does picking the largest, since scales are
positive. The second quantizer has the same grid and changes nothing: round((q - z) * s / s) is
q - z again for codes of up to 16 bits. Identity, and Cast to the type the codes have, vanish.

Starting at the quantizers, each operator is visited when the codes it reads are known, whatever the
order of the nodes. An operator that does not support codes shows a broken file, which is refused.
"""

from __future__ import annotations

import functools
from collections import deque
from typing import Literal

import numpy as np
import onnx_graphsurgeon as gs
from onnx import defs

from onnxq.dialects import qdq_params
from onnxq.dialects.code_nodes import CodeGrid, CodeNodes, channel_permutations, grid_of
from onnxq.dialects.node_rewrite import Declined
from onnxq.edit import (
    constant,
    describe,
    inputs_of,
    new_node,
    op_name,
    producer,
    remove,
    replace,
    set_input,
    set_output,
    users,
    variable,
)
from onnxq.errors import InvalidModelError, QParamsError
from onnxq.graph import domain_of
from onnxq.graph.constants import computed
from onnxq.operators.integer_operators import MICROSOFT
from onnxq.operators.traits import DEQUANTIZE, MOVES, QUANTIZE, moved_outputs, picks_nearest
from onnxq.pass_ import Trace
from onnxq.quant.qparams import Array
from onnxq.storage.tensors import numpy_dtype

_ON_CODES = (MOVES - {"Dropout", "GlobalMaxPool", "Identity"}) | {"Pad", "Resize"}
"""Operators that may move codes: Dropout and GlobalMaxPool take floats only, Identity vanishes.

A Pad with any code is known; so is Concat, where all inputs are codes. Both are handled apart.
"""


def move_layout(make: CodeNodes, trace: Trace) -> None:
    """Rewrite every such operator on codes whose grid is known."""
    mover = _Mover(make, trace)
    for node in make.model.nodes(*QUANTIZE):
        mover.start(node)
    mover.follow_all()
    for node in make.model.nodes("Gather"):
        _gather_of_stored(node, make, trace)


class _Mover:
    """Follows codes from their quantizers to their consumers."""

    def __init__(self, make: CodeNodes, trace: Trace) -> None:
        self.make, self.trace, self.model = make, trace, make.model
        self.queue: deque[gs.Tensor] = deque()
        self.grids: dict[int, CodeGrid] = {}
        self.arrived: dict[int, set[int]] = {}  # inputs of each Concat visited so far

    def start(self, quantize: gs.Node) -> None:
        """Begin at one quantizer."""
        codes = quantize.outputs[0]
        if all(map(is_dequantize, codes.outputs)):
            return  # as nearly everywhere: there is nothing to do
        try:
            stated = quantize.attrs.get("output_dtype", 0)
            kind = numpy_dtype(stated) if stated else np.dtype(np.uint8)
            axis = int(quantize.attrs.get("axis", 1))
            grid = grid_of(quantize, 1, None, axis, kind)
            qdq_params.code_type(grid.zero_point.dtype)
        except (Declined, QParamsError):
            return  # 'read-qdq' says why
        wrong = grid.scale[~(np.isfinite(grid.scale) & (grid.scale > 0))]
        if wrong.size:
            raise QParamsError(
                f"tensor '{quantize.inputs[0].name}': scale {wrong.reshape(-1)[0]} is not a "
                "positive finite number",
                fix="recalibrate this tensor, or leave it unquantized",
            )
        self._follow(codes, grid)

    def _follow(self, codes: gs.Tensor, grid: CodeGrid) -> None:
        self.grids[id(codes)] = grid
        self.queue.append(codes)

    def follow_all(self) -> None:
        """Follow all codes as far as they go."""
        while self.queue:
            codes = self.queue.popleft()
            pending = deque(users(codes))
            while pending:
                node, index = pending.popleft()
                pending.extend(self._visit(node, index, codes, self.grids[id(codes)]))

    def _visit(
        self, node: gs.Node, index: int, codes: gs.Tensor, grid: CodeGrid
    ) -> list[tuple[gs.Node, int]]:
        """Rewrite one consumer; returns further consumers of the same codes if it vanished."""
        if index >= len(node.inputs) or node.inputs[index] is not codes:
            return []  # rewritten when visited at another input
        if domain_of(node):
            if (domain_of(node), node.op) == (MICROSOFT, "NhwcMaxPool"):
                self._pool_with_channels_last(node, codes, grid)
            return []
        if node.op in ("Identity", "Cast"):
            return self._copied(node, codes, grid)
        if node.op == "Concat":
            self._concat(node, codes, grid)
        elif node.op in _ON_CODES:
            if index == 0:
                self._moved(node, codes, grid)
        elif node.op not in ("DequantizeLinear", "Clip"):
            check_type(node, index, codes, grid.zero_point.dtype)
        return []

    def _copied(self, node: gs.Node, codes: gs.Tensor, grid: CodeGrid) -> list[tuple[gs.Node, int]]:
        dtype = grid.zero_point.dtype
        target = numpy_dtype(node.attrs.get("to", 0)) if node.op == "Cast" else dtype
        out, label = node.outputs[0], describe(node)
        consumers = users(out)
        if self.model.is_output(out):
            return []
        if target == dtype:
            before = producer(codes)
            if before is None or node.owner is not before.owner:
                return []
            replace(node, codes, self.model)
            self.trace.rewrote(label, "dropped: it copies codes")
            return consumers
        # Integers in a wider type: consumers can read the codes, if these have their zero points.
        if target.kind not in "iu" or dtype.kind not in "iu" or not np.can_cast(dtype, target):
            return []
        zeros = [computed(inputs_of(n, 3)[2]) if is_dequantize(n) else None for n, _ in consumers]
        narrow = [z.astype(dtype) for z in zeros if z is not None and np.all(z.astype(dtype) == z)]
        if not narrow or len(narrow) < len(consumers):
            return []
        for (consumer, _), zero in zip(consumers, narrow, strict=True):
            set_input(consumer, 0, codes)
            set_input(consumer, 2, constant(self.model, f"{codes.name}.zero_point", zero))
        self.trace.rewrote(label, f"codes stay {dtype}")
        return []

    def _moved(self, node: gs.Node, codes: gs.Tensor, grid: CodeGrid) -> None:
        reason = self._obstacle(node, grid)
        if reason:
            self.trace.skip(node, reason)
            return
        real = self.make.real(codes, grid)
        if node.op == "Pad":
            self._pad(node, grid)
        set_input(node, 0, real)
        self._requantized(node, grid)

    def _pool_with_channels_last(self, node: gs.Node, codes: gs.Tensor, grid: CodeGrid) -> None:
        """onnxruntime's MaxPool for channels in the last dimension, between two Transpose."""
        if grid.axis is not None:
            self.trace.skip(node, "it moves codes that have one scale per channel")
            return
        model, graph, out, label = self.model, node.owner, node.outputs[0], describe(node)
        name, attrs = node.name or out.name, dict(node.attrs)
        there, back = channel_permutations(len(attrs["kernel_shape"]) + 2)
        real = self.make.real(codes, grid)
        remove(node, model)
        first, pooled = (variable(model, f"{name}.{part}", like=None) for part in ("in", "out"))
        last = self.make.source(out, grid, graph)
        for op, source, result, what, given in (
            ("Transpose", real, first, ".to_channels_first", {"perm": there}),
            ("MaxPool", first, pooled, "", attrs),
            ("Transpose", pooled, last, ".to_channels_last", {"perm": back}),
        ):
            new_node(model, op, [source], [result], name=f"{name}{what}", attrs=given, graph=graph)
        self._follow(out, grid)
        self.trace.rewrote(label, "on real values")

    def _obstacle(self, node: gs.Node, grid: CodeGrid) -> str:
        if grid.axis is not None:
            return "it moves codes that have one scale per channel"
        if node.op == "Resize" and not picks_nearest(node.attrs):
            return "it computes new values between codes, or pads with a value that is not a code"
        fill = inputs_of(node, 3)[2] if node.op == "Pad" else None
        if fill is not None and _code_of(fill) is None:
            return f"the value it pads with ('{fill.name}') is computed at run time"
        return ""

    def _pad(self, node: gs.Node, grid: CodeGrid) -> None:
        """Pad with the real value of the code it padded with."""
        if node.attrs.get("mode", "constant") != "constant":
            return
        value = _code_of(inputs_of(node, 3)[2])
        code = np.zeros((), np.int64) if value is None else value.astype(np.int64).reshape(())
        real = (code - grid.zero_point.astype(np.int64)).astype(grid.scale.dtype) * grid.scale
        name = f"{node.name or node.outputs[0].name}.value"
        set_input(node, 2, constant(self.model, name, np.asarray(real, grid.scale.dtype)))

    def _concat(self, node: gs.Node, codes: gs.Tensor, grid: CodeGrid) -> None:
        met = self.arrived.setdefault(id(node), set())
        if not met:
            check_concat(node, codes, grid.zero_point.dtype)
        met.add(id(codes))
        if len(met) < len({id(t) for t in node.inputs}):
            return
        grids = [self.grids[id(t)] for t in node.inputs]
        if grid.axis is not None or len({g.key for g in grids}) > 1:
            self.trace.skip(node, "it concatenates codes with different scales or zero points")
            return
        for index, tensor in enumerate(list(node.inputs)):
            set_input(node, index, self.make.real(tensor, grid))
        self._requantized(node, grid)

    def _requantized(self, node: gs.Node, grid: CodeGrid) -> None:
        """Let quantizers produce the codes the node produced."""
        for index in moved_outputs(node):
            codes = node.outputs[index]
            set_output(node, index, gs.Variable(""))
            set_output(node, index, self.make.source(codes, grid, node.owner))
            self._follow(codes, grid)
        self.trace.rewrote(node, "on real values")


def is_dequantize(node: gs.Node) -> bool:
    """Whether a consumer of codes is a DequantizeLinear."""
    return op_name(node) in DEQUANTIZE


def _gather_of_stored(node: gs.Node, make: CodeNodes, trace: Trace) -> None:
    """Rewrite an embedding stored in codes: Gather -> DQ becomes DQ -> Gather."""
    if not node.inputs or not node.outputs:
        return
    table, out = node.inputs[0], node.outputs[0]
    if not isinstance(table, gs.Constant) or np.dtype(table.dtype or float).itemsize > 2:
        return
    consumers = list(out.outputs)
    if make.model.is_output(out) or not consumers or not all(map(is_dequantize, consumers)):
        return
    try:
        grids = [grid_of(n, 1, table, int(n.attrs.get("axis", 1))) for n in consumers]
    except (Declined, QParamsError):
        return  # 'read-qdq' says why
    if grids[0].axis is not None or len({g.key for g in grids}) > 1:
        trace.skip(node, "it looks up codes that have more than one scale")
        return
    set_input(node, 0, make.real(table, grids[0]))
    out.dtype = grids[0].scale.dtype
    for consumer in consumers:
        replace(consumer, out, make.model)
    trace.rewrote(node, "looks up real values")


# -- broken files -------------------------------------------------------------------------------


@functools.cache
def _types(op: str, side: Literal["inputs", "outputs"], index: int) -> frozenset[str]:
    """The types that an input or output can have in the newest opset; empty if unknown."""
    try:
        ends = getattr(defs.get_schema(op), side)
    except defs.SchemaError:
        return frozenset()
    return frozenset(ends[min(index, len(ends) - 1)].types) if ends else frozenset()


_FIX = (
    "the file is not a valid ONNX model: a DequantizeLinear is missing before this node. Export "
    "it again, or give the model it was made from"
)


def check_type(node: gs.Node, index: int, codes: gs.Tensor, dtype: np.dtype[np.generic]) -> None:
    """Raise if an operator reads codes although it does not support integers."""
    types = _types(node.op, "inputs", index)
    if types and f"tensor({dtype.name})" not in types:
        raise InvalidModelError(
            f"{describe(node)} reads '{codes.name}', which contains {dtype.name} codes, but "
            f"{node.op} does not support that type",
            fix=_FIX,
        )


def check_concat(node: gs.Node, codes: gs.Tensor, dtype: np.dtype[np.generic]) -> None:
    """Raise if codes are joined with the result of an operator that produces floats only."""
    for other in node.inputs:
        before = producer(other)
        if before is None or domain_of(before):
            continue
        types = _types(before.op, "outputs", 0)
        if types and f"tensor({dtype.name})" not in types:
            raise InvalidModelError(
                f"{describe(node)} concatenates '{codes.name}', which contains {dtype.name} "
                f"codes, with '{other.name}', the float output of {describe(before)}",
                fix=_FIX,
            )


def _code_of(tensor: gs.Tensor | None) -> Array | None:
    """A constant code, or the one that a QuantizeLinear makes of a constant; else None."""
    quantize = None if tensor is None else producer(tensor, *QUANTIZE)
    value = None if quantize is None else computed(quantize.inputs[0])
    if quantize is None or value is None or any(computed(t) is None for t in quantize.inputs[1:]):
        return computed(tensor)
    return qdq_params.of_quantize(quantize, quantize.inputs[0].name).quantize(value)
