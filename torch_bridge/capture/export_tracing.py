"""Turns a model into an FX graph by torch.export, for models whose code FX cannot trace.

FX runs code with placeholders, which have no shape: a branch on a size, a loop over a dimension or
an unpacked shape ends the trace. torch.export runs it with tensors that have shapes and no values,
and sizes that stay symbols. The result is lifted back (`export_lifting`) to the graph that FX would
have made. One graph serves both modes, as in `tracing`; where the code of the model itself differs
between them, it is that of evaluation.
"""

from __future__ import annotations

from torch import fx, nn

from torch_bridge.capture.argument_checks import Sizes
from torch_bridge.capture.example_call import ExampleCall
from torch_bridge.capture.export_attempt import ExportAttempt
from torch_bridge.capture.mode_differences import (
    OWNER,
    Untraceable,
    add_flags,
    differing,
    reconcile,
)
from torch_bridge.capture.quantized_graph import QuantizedGraph
from torch_bridge.capture.report import Leaf
from torch_bridge.capture.tracing import (
    COST,
    Traced,
    TraceOptions,
    structural_copy,
)

BY_EVALUATION = (
    "its code differs between training and evaluation; the graph is that of evaluation in both "
    "modes, in which only modules such as Dropout and BatchNorm follow the mode"
)


def export_trace(model: nn.Module, call: ExampleCall, options: TraceOptions) -> Traced:
    """The graph of `model` for calls like `call`; `model` itself is not changed."""
    left: dict[str, Leaf] = {}
    skipped = options.leaf_paths
    while True:
        try:
            evaluation = ExportAttempt(model, call, False, skipped, options)
        except Untraceable as failure:
            path = _above(failure.path, skipped)
            skipped |= {path}
            left[path] = Leaf(path, failure.reason, COST)
            if not path:
                return Traced(None, [left[path]])
            continue
        found, cautions = evaluation, []
        try:
            training = ExportAttempt(model, call, True, skipped, options)
            different = differing(training.events, evaluation.events)
            if different and "" not in different:  # else reconcile tells
                skipped |= set(different)
                left |= {
                    p: Leaf(p, Untraceable(p).reason, COST)
                    for p in different
                    if evaluation.events[p]  # else it does nothing in evaluation: DropPath
                }
                continue
            graph = reconcile(
                (training.graph, training.events), (evaluation.graph, evaluation.events)
            )
            found = training
            found.graph = graph
            found.conditions = [*dict.fromkeys(training.conditions + evaluation.conditions)]
        except Untraceable as failure:
            cautions = [f"{Leaf(failure.path, '', '').where}: {BY_EVALUATION}"]
        cautions += [
            f"the result '{name}' is not returned: it is not made of tensors"
            for name in found.dropped
        ]
        return Traced(_graph_module(model, found), list(left.values()), cautions)


def _above(path: str, skipped: frozenset[str]) -> str:
    """The module to leave out: one that failed as a leaf too is left out with what contains it."""
    while path and path in skipped:
        path = path.rpartition(".")[0]
    return path


def _graph_module(model: nn.Module, found: ExportAttempt) -> QuantizedGraph:
    root = structural_copy(model)
    graph = found.graph
    add_flags(root, graph)
    for name, module in found.arguments.modules.items():
        root.add_module(name, module.train(root.training))
    for name, value in found.constants.items():
        root.register_buffer(name, value, persistent=False)
    if found.conditions:
        sizes = Sizes(found.arguments.names, found.conditions)
        root.add_module("onnxq_sizes", sizes.train(root.training))
        with graph.inserting_after(found.arguments.tensors[-1]):
            check = graph.call_module("onnxq_sizes", tuple(found.arguments.tensors))
        check.meta[OWNER] = ""
    for node in reversed(list(graph.nodes)):
        if not node.users and _reads_a_size(node):
            graph.erase_node(node)
    made = QuantizedGraph(root, graph, type(model).__name__)
    for path, module in made.named_modules():
        module.training = root.get_submodule(path).training
    made.graph.lint()
    return made


def _reads_a_size(node: fx.Node) -> bool:
    return (node.op == "call_method" and node.target == "size") or node.target is getattr
