"""From a canonical graph to ncnn's .param and .bin; what cannot be written is refused by name."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from onnxq.canonical.fake_quantize import is_fake_quantize
from onnxq.edit import describe
from onnxq.errors import BackendError, listed
from onnxq.graph import Model, domain_of
from onnxq.ncnn.moves import FOLLOW_THE_BATCH, RESHAPES
from onnxq.ncnn.network import Network, NotInNcnn, dims
from onnxq.ncnn.operators import ON_ROWS, TRANSLATORS
from onnxq.ncnn.program import Layer, write_bin, write_param
from onnxq.side_files.side_file import Content
from onnxq.storage.exporter import sorted_nodes

PARAM, BIN = "param", "bin"

_REMOVE = (
    "remove these parts from the model, or run them in another runtime; supported: "
    f"{', '.join(sorted(TRANSLATORS))}"
)


_INSTEAD = {
    **dict.fromkeys(
        ("Shape", "Size", "ConstantOfShape", "Range", "Expand"),
        "export with fixed sizes of all inputs, so that shapes are constants",
    ),
    **dict.fromkeys(("If", "Loop", "Scan"), "export without control flow: trace one fixed path"),
    **dict.fromkeys(
        ("NonMaxSuppression", "TopK", "NonZero", "ArgMax", "ScatterND", "GatherND"),
        "cut the model before this part and compute it in the application",
    ),
    **dict.fromkeys(
        ("LSTM", "GRU", "RNN"), "cut the model here: recurrent layers are not written in int8"
    ),
}
"""The next step for operators that are known not to be written."""


def layers_of(model: Model) -> list[Layer]:
    """The layers that compute `model`, or one error for all nodes that none computes."""
    net = Network(model)
    refused: dict[str, str] = {}
    fixes: dict[str | None, None] = {}  # in order, each once
    lost: set[str] = set()
    """Tensors that nothing makes since their node was refused: their readers are not at fault."""
    for tensor in model.graph.inputs:
        try:
            net.add("Input", tensor.name, [], [net.made(tensor)], dims(net.shape(tensor)))
        except NotInNcnn as why:
            refused[f"input '{tensor.name}'"] = str(why)
            fixes[why.fix] = None
    for node in sorted_nodes(model.graph):
        if node.op not in RESHAPES and any(map(net.lacks_batch, node.inputs)):
            for tensor in node.outputs:
                net.merge_batch(tensor)
        if id(node) in net.done or is_fake_quantize(node):
            if is_fake_quantize(node) and any(t.name in lost for t in node.inputs):
                lost.update(t.name for t in node.outputs)
            continue
        translate = TRANSLATORS.get(node.op) if not domain_of(node) else None
        if translate is None:
            refused[describe(node)] = f"operator {node.op} is not among those written for ncnn"
            fixes[_INSTEAD.get(node.op)] = None
        elif not any(t.name in lost for t in node.inputs):
            try:
                _check_batches(net, node)
                translate(net, node)
                continue
            except NotInNcnn as why:
                refused[describe(node)] = str(why)
                fixes[why.fix] = None
        lost.update(t.name for t in node.outputs)
    if not refused:
        for tensor in model.graph.outputs:
            try:
                if any(tensor is given for given in model.graph.inputs):
                    raise NotInNcnn("it is an input too", "remove this output")
                if net.batch_of(tensor):
                    raise NotInNcnn("its batch is not its first axis", "transpose it back")
                if net.lacks_batch(tensor):
                    raise NotInNcnn("no axis of it is the batch", "reshape it to a batch of 1")
                net.blob(tensor)
            except NotInNcnn as why:
                refused[f"output '{tensor.name}'"] = str(why)
                fixes[why.fix] = None
    if refused:
        raise BackendError(
            f"{len(refused)} part{'s' if len(refused) > 1 else ''} of the model cannot be written "
            "for ncnn:" + listed(f"{where}: {why}" for where, why in refused.items()),
            fix="; ".join(_REMOVE if fix is None else fix for fix in fixes),
        )
    return net.with_splits()


def _check_batches(net: Network, node: gs.Node) -> None:
    """Refuse what would take another axis for the batch."""
    moved = [t.name for t in node.inputs if net.batch_of(t)]
    if moved and node.op not in FOLLOW_THE_BATCH:
        raise NotInNcnn(
            f"the batch of '{moved[0]}' is not its first axis",
            "transpose such tensors back before computing with them",
        )
    merged = [t.name for t in node.inputs if net.lacks_batch(t)]
    if not merged or node.op in RESHAPES:
        return
    given = [t for t in node.inputs if t.name and net.constant(t) is None]
    if node.op not in ON_ROWS or len(merged) < len(given):
        raise NotInNcnn(
            f"no axis of '{merged[0]}' is the batch: it was merged with another",
            "reshape such tensors to a batch of 1 before computing with them",
        )


def write(model: Model) -> dict[str, Content]:
    """Both files."""
    layers = layers_of(model)
    return {PARAM: write_param(layers), BIN: write_bin(layers)}
