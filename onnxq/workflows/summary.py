"""Summary of a model: versions, operators, quantizers, and which layers are quantized."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnxq.canonical.quantizers import is_quantizer, quantizer_behind
from onnxq.dialects import quantizing_operators
from onnxq.edit import describe, op_name
from onnxq.graph import Model
from onnxq.operators.weight_axis import LINEAR_OPS
from onnxq.parsing.argument_types import takes
from onnxq.pass_ import Skip
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from onnxq.reading import canonical, dialects_of, readable_form
from onnxq.views.shown_result import ShownResult
from passes.collect_qparams import CollectQParams

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class LayerSummary:
    """One linear layer, and which of its tensors have a quantizer."""

    name: str
    op: str
    input: bool
    weight: bool
    output: bool

    @property
    def quantized(self) -> bool:
        """Whether both input and weight are."""
        return self.input and self.weight


@dataclass(repr=False)
class Summary(ShownResult):
    """A model in numbers."""

    opsets: dict[str, int]
    ir_version: int
    producer: str
    inputs: list[tuple[str, str]]
    outputs: list[tuple[str, str]]
    ops: dict[str, int]
    constants: int
    constant_bytes: int
    dialects: list[str]
    table: QParamTable
    layers: list[LayerSummary]
    unread: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes of readers and side files, and quantizers without a scale."""

    def __repr__(self) -> str:
        kinds = ", ".join(self.dialects) or "no quantization"
        return f"<Summary: {sum(self.ops.values())} nodes, {kinds}, {len(self.table)} quantizers>"

    def _view(self, most: int) -> RenderableType:
        from onnxq.views import tables

        return tables.summary(self, most)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return vars(self) | {
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "table": self.table.to_json(),
            "layers": [vars(layer) | {"quantized": layer.quantized} for layer in self.layers],
            "unread": [vars(skip) for skip in self.unread],
        }


@takes(model=Model)
def summarize(model: Model) -> Summary:
    """Summarize a model; quantizers of every dialect are read into one table."""
    ops = Counter(op_name(node) for node in model.nodes())
    readable = readable_form(model)
    read, traces = canonical(readable)
    table = Pipeline(CollectQParams()).run(read).model.qparams
    refused = {
        (where := describe(node)): Skip(where, f"{kind.name}: {kind.why}")
        for node, kind in quantizing_operators.unreadable(model)
    }
    known: dict[int, Any] = {}
    constants = [c for g in model.graphs() for c in g.record.constants]
    return Summary(
        opsets={domain or "ai.onnx": version for domain, version in model.opsets.items()},
        ir_version=model.ir_version,
        producer=f"{model.header.producer_name} {model.header.producer_version}".strip(),
        inputs=[(t.name, _type(t)) for t in model.graph.inputs],
        outputs=[(t.name, _type(t)) for t in model.graph.outputs],
        ops=dict(ops.most_common()),
        constants=len(constants),
        constant_bytes=sum(int(c._values.nbytes) for c in constants),
        dialects=dialects_of([op_name(n) for n in readable.nodes()], traces),
        table=table,
        layers=[_layer(node, known) for node in read.nodes(*LINEAR_OPS)],
        unread=[
            *refused.values(),
            *(skip for trace in traces for skip in trace.skips if skip.where not in refused),
        ],
        notes=[
            *readable.upgrades,
            *(f"{trace.name}: {note}" for trace in traces for note in trace.notes),
            *(
                f"'{row.tensor}' is quantized logarithmically, largest magnitude {row.data_max:.6g}"
                for row in table.logarithmic
            ),
        ],
    )


def _type(tensor: Any) -> str:
    if tensor.dtype is None:
        return "?"
    if tensor.shape is None:
        return f"{tensor.dtype}[?]"
    return f"{tensor.dtype}[{', '.join('?' if d is None else str(d) for d in tensor.shape)}]"


def _layer(node: Any, known: dict[int, Any]) -> LayerSummary:
    def quantized(tensor: Any) -> bool:
        return quantizer_behind(tensor, known) is not None

    # The quantizer of a layer's result often comes after its activation function.
    out, result = node.outputs[0], False
    for _ in range(4):
        consumers = out.outputs
        result = quantized(out) or any(is_quantizer(n) for n in consumers)
        if result or len(consumers) != 1 or not consumers[0].outputs:
            break
        if consumers[0].op in LINEAR_OPS:
            break
        out = consumers[0].outputs[0]
    name = node.name or node.outputs[0].name
    return LayerSummary(name, node.op, quantized(node.inputs[0]), quantized(node.inputs[1]), result)
