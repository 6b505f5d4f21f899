"""Writes a canonical graph as ncnn's .param and .bin; unsupported nodes are rejected by name."""

from __future__ import annotations

from onnxq.canonical.fake_quantize import is_fake_quantize
from onnxq.edit import describe
from onnxq.errors import BackendError, listed
from onnxq.graph import Model, domain_of
from onnxq.ncnn.network import Network, NotInNcnn, dims
from onnxq.ncnn.operators import TRANSLATORS
from onnxq.ncnn.program import Layer, write_bin, write_param
from onnxq.side_files.side_file import Content
from onnxq.storage.exporter import sorted_nodes

PARAM, BIN = "param", "bin"

_REMOVE = (
    "remove these parts from the model, or run them in another runtime; supported: "
    f"{', '.join(sorted(TRANSLATORS))}"
)


def layers_of(model: Model) -> list[Layer]:
    """The layers that compute `model`; raises one error for all nodes that no layer computes."""
    net = Network(model)
    refused: dict[str, str] = {}
    fixes: dict[str | None, None] = {}  # in order, each once
    lost: set[str] = set()
    """Outputs of refused nodes: their consumers are not at fault."""

    def refuse(where: str, why: NotInNcnn) -> None:
        refused[where] = str(why)
        fixes[why.fix] = None

    for tensor in model.graph.inputs:
        try:
            net.add("Input", tensor.name, [], [net.made(tensor)], dims(net.shape(tensor)))
        except NotInNcnn as why:
            refuse(f"input '{tensor.name}'", why)
    for node in sorted_nodes(model.graph):
        if id(node) in net.done or is_fake_quantize(node):
            if is_fake_quantize(node) and any(t.name in lost for t in node.inputs):
                lost.update(t.name for t in node.outputs)
            continue
        translate = TRANSLATORS.get(node.op) if not domain_of(node) else None
        if translate is None:
            refuse(describe(node), NotInNcnn(f"operator {node.op} is not supported"))
        elif not any(t.name in lost for t in node.inputs):
            try:
                translate(net, node)
                continue
            except NotInNcnn as why:
                refuse(describe(node), why)
        lost.update(t.name for t in node.outputs)
    if not refused:
        for tensor in model.graph.outputs:
            try:
                net.blob(tensor)
            except NotInNcnn as why:
                refuse(f"output '{tensor.name}'", why)
    if refused:
        raise BackendError(
            f"{len(refused)} part{'s' if len(refused) > 1 else ''} of the model cannot be written "
            "for ncnn:" + listed(f"{where}: {why}" for where, why in refused.items()),
            fix="; ".join(_REMOVE if fix is None else fix for fix in fixes),
        )
    return net.with_splits()


def write(model: Model) -> dict[str, Content]:
    """The content of both files, by part."""
    layers = layers_of(model)
    return {PARAM: write_param(layers), BIN: write_bin(layers)}
