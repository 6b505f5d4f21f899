"""Remove logarithmic quantizers of inputs that NNIE's parameter file has no number for.

    FakeQuantizeLog(x) -> GlobalAveragePool    becomes    x -> GlobalAveragePool

`onnxq.side_files.nnie_inputs` specifies these inputs. A network output is not an input of any node,
so it has no number either. Nor have the inputs of a layer of which only some are quantized, if
nothing tells which (`onnxq.side_files.nnie_numbers`): the file lists numbers without names. The
compiler picks its own there, or computes in float: the file cannot say which. Other consumers of
the same tensor keep the quantizer. A weight keeps it too: its values specify it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize_log import FAKE_QUANTIZE_LOG, data_max_of, make
from onnxq.canonical.quantizers import is_quantizer
from onnxq.edit import describe, insert_at, producer, replace, set_input, users
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.side_files.nnie_inputs import float_tensor, writable_inputs
from onnxq.side_files.nnie_numbers import assigned


@dataclass(frozen=True)
class DropUnwritableQuantizers(Pass):
    """Remove logarithmic quantizers that NNIE's parameter file has no number for."""

    name: ClassVar[str] = "drop-unwritable-quantizers"
    lossy: ClassVar[bool] = True
    needs_canonical: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("sink-log-quantizers",)

    def run(self, model: Model, trace: Trace) -> None:
        quantizers = model.nodes(FAKE_QUANTIZE_LOG)
        reading = (n for q in quantizers for n in q.outputs[0].outputs)
        readers = {id(n): n for n in reading if not is_quantizer(n)}
        given = {key: _numbers(n) for key, n in readers.items()}
        wrong = _not_assigned(readers, given)
        writable = {(key, i) for key, n in given.items() if key not in wrong for i in n}
        for node in quantizers:
            source = node.inputs[0]
            if is_constant(source):
                continue
            for reader, index in users(node.outputs[0]):
                if id(reader) in readers and (id(reader), index) not in writable:
                    set_input(reader, index, source)
                    trace.rewrote(f"'{source.name}'", f"goes to {describe(reader)} unrounded")
            if model.is_output(node.outputs[0]):
                _leave_unrounded(model, node)
                trace.rewrote(f"'{source.name}'", "is a network output, unrounded")


def _numbers(node: gs.Node) -> dict[int, float]:
    """The numbers of the quantized inputs of `node` that the file can contain."""
    found = ((i, producer(node.inputs[i], FAKE_QUANTIZE_LOG)) for i in writable_inputs(node))
    return {index: data_max_of(made) for index, made in found if made is not None}


def _not_assigned(readers: dict[int, gs.Node], given: dict[int, dict[int, float]]) -> set[int]:
    """Readers whose numbers would be for other inputs, or for none, when read back."""
    lists = ((readers[key], list(n.values())) for key, n in given.items() if n)
    found, unclear = assigned(lists, float_tensor)
    wrong = {id(node) for node in unclear}
    return wrong | {id(node) for node, read in found if read != given[id(node)]}


def _leave_unrounded(model: Model, node: gs.Node) -> None:
    """Make the input of the quantizer the network output; consumers get their own quantizer."""
    source, kept, reach = node.inputs[0], users(node.outputs[0]), data_max_of(node)
    if kept:
        insert_at(model, source, lambda x, y, g: make(model, x, y, reach, g), kept, leaves=False)
    replace(node, by=source, model=model)
