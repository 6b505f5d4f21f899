"""Rewrites the graph so that a layer computes the affine step before or after it.

The arithmetic is in `linear`. Constants are always new ones, since other nodes may read the old.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from onnxq.canonical import fake_quantize
from onnxq.edit import (
    constant,
    inputs_of,
    insert,
    new_node,
    only_reader,
    read_by,
    remove,
    replace,
    set_input,
    set_output,
    variable,
)
from onnxq.folding.affine import Affine, quiet
from onnxq.folding.linear import (
    LinearLayer,
    bias_add,
    bias_of,
    rounded,
    scaled_inputs,
    scaled_outputs,
)
from onnxq.folding.rescale_weight import Rescaled
from onnxq.graph import Model
from onnxq.graph.constants import array, is_constant
from onnxq.operators.weight_axis import BIAS_INPUT
from onnxq.pass_ import Trace
from onnxq.quant.qparams import Array, Reader, Role
from onnxq.storage.exporter import describe

_SUFFIX = ".folded"


@dataclass
class Folding:
    """Folds affine steps into the layers of one model; call `finish` at the end."""

    model: Model
    trace: Trace
    flip: bool = True
    """Whether codes may be mirrored if a negative gain requires it."""
    _changed_bias: dict[str, tuple[gs.Tensor, set[Reader]]] = field(default_factory=dict)

    @quiet
    def behind(self, layer: LinearLayer, chain: list[gs.Node], step: Affine) -> None:
        """Let the layer compute `step`, which the nodes of `chain` after it compute now.

        `chain` starts at the layer; nothing else reads the tensors in between. If it raises
        CannotFold, nothing has changed.
        """
        node, model = layer.node, self.model
        gain, shift = step.vectors(layer.layout.channels)
        # The first entry nearly always decides, without the cost of a reduction.
        keeps_weight = gain[0] == 1.0 and bool((gain == 1.0).all())
        weight = None if keeps_weight else scaled_outputs(layer, gain, self.flip)
        bias, dtype = bias_of(layer)
        changes_bias = shift[0] != 0.0 or bool(shift.any())
        if bias is not None:
            changes_bias |= not keeps_weight
            shift = bias * gain + shift
        new_bias = rounded(shift, dtype, "bias") if changes_bias else None

        self._set_weight(layer, weight)
        last, y = chain[-1], node.outputs[0]
        for link in reversed(chain[:-1]):
            remove(link, model)
        result, graph = last.outputs[0], last.owner
        if node.op != "MatMul" and new_bias is not None:
            self._set_bias(node, new_bias)
        if graph is not node.owner and (node.op != "MatMul" or new_bias is None):
            replace(last, y, model)  # a body returns what a layer outside of it computes
            return
        remove(last, model)
        if node.op == "MatMul" and new_bias is not None:
            if weight is not None:
                y = variable(model, _folded(y.name), like=y)
                set_output(node, 0, y)
            self._add(node, y, new_bias, result, graph)
            return
        # The layer produces the tensor of the chain: one name means one value, before and after.
        set_output(node, 0, result)

    @quiet
    def before(self, layer: LinearLayer, front: gs.Node, step: Affine) -> None:
        """Let the layer compute `step`, which `front`, read by it alone, computes now."""
        node, model, y = layer.node, self.model, layer.node.outputs[0]
        weight, added = scaled_inputs(layer, step)
        bias, dtype = bias_of(layer)
        add = bias_add(node, model)
        if add is not None:
            slot = 1 if add.inputs[0] is y else 0
            bias = array(add.inputs[slot])
        changes_bias = bool(added.any())
        if changes_bias:
            added = rounded(added if bias is None else bias + added, dtype, "bias")

        self._set_weight(layer, weight)
        if changes_bias and node.op != "MatMul":
            self._set_bias(node, added)
        elif changes_bias and add is not None:
            set_input(add, slot, constant(model, _folded(add.inputs[slot].name), added))
        elif changes_bias:
            insert(model, y, lambda x, result, graph: self._add(node, x, added, result, graph))
        set_input(node, 0, front.inputs[0])
        remove(front, model)

    def finish(self) -> None:
        """Drop the table rows of biases that have changed since they were quantized."""
        rows = []
        for row in self.model.qparams:
            if row.role is Role.BIAS and row.tensor in self._changed_bias:
                tensor, readers = self._changed_bias[row.tensor]
                left = None if row.readers is None else tuple(set(row.readers) - readers)
                if not left if left is not None else not tensor.outputs:
                    self.trace.note(
                        f"bias '{row.tensor}' was folded into, so its quantization was dropped: "
                        "run 'quantize-bias' for a new one"
                    )
                    continue
                row = row.with_(readers=left)
            rows.append(row)
        self.model.qparams.rows[:] = rows

    # -- changing the graph ---------------------------------------------------------------------

    def _set_weight(self, layer: LinearLayer, made: Array | Rescaled | None) -> None:
        node, fake, model = layer.node, layer.fake, self.model
        if made is None and is_constant(layer.source):
            return
        values = made.weight if isinstance(made, Rescaled) else made
        values = layer.weight if values is None else values
        weight = constant(model, _folded(layer.source.name), values)
        if fake is None:
            set_input(node, 1, weight)
            return
        if not isinstance(made, Rescaled):
            set_input(fake, 0, weight)
            return
        for note in made.notes:
            self.trace.note(f"{describe(node)}: {note}")
        y = fake.outputs[0]
        if only_reader(y, node, model):
            set_input(fake, 0, weight)
            fake_quantize.set_params(model, fake, made.params)
            return
        own = variable(model, _folded(y.name), like=y)
        fake_quantize.make(model, weight, own, made.params, fake.owner, name=_folded(fake.name))
        set_input(node, 1, own)

    def _set_bias(self, node: gs.Node, value: Array) -> None:
        index = BIAS_INPUT[node.op]
        old = inputs_of(node, index + 1)[index]
        name = f"{node.name or node.outputs[0].name}.bias" if old is None else _folded(old.name)
        if old is not None and self.model.qparams.rows:
            readers = self._changed_bias.setdefault(old.name, (old, set()))[1]
            readers.add(read_by(node, index))
        set_input(node, index, constant(self.model, name, value))
        node.attrs.pop("beta", None)  # the new bias contains it

    def _add(
        self, node: gs.Node, x: gs.Tensor, bias: Array, result: gs.Tensor, graph: gs.Graph
    ) -> None:
        base = f"{node.name or node.outputs[0].name}.bias"
        inputs = [x, constant(self.model, base, bias)]
        new_node(self.model, "Add", inputs, [result], name=f"{base}_add", graph=graph)


def _folded(name: str) -> str:
    return name if name.endswith(_SUFFIX) else name + _SUFFIX
