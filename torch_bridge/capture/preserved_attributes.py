"""Attributes and methods of the user's model that the graph made of it must have."""

from __future__ import annotations

import types
from collections.abc import Iterable

from torch import nn

from onnxq.errors import OptionError, near_matches
from torch_bridge.capture.quantized_graph import Method, QuantizedGraph


def preserve(model: nn.Module, graph_module: QuantizedGraph, paths: Iterable[str]) -> None:
    """Give the graph's modules attributes and methods of the model they were traced from."""
    for path in paths:
        owner, _, name = path.rpartition(".")
        try:
            source = model.get_submodule(owner)
            value = getattr(source, name)
        except AttributeError:
            raise _no_such_attribute(model, owner, path) from None
        if isinstance(value, types.MethodType) and value.__self__ is source:
            value = Method(value.__func__)
        graph_module.keep(path, value)


def _no_such_attribute(model: nn.Module, owner: str, path: str) -> OptionError:
    modules = dict(model.named_modules())
    if owner in modules:
        known = [f"{owner}.{n}".lstrip(".") for n in dir(modules[owner]) if not n.startswith("_")]
    else:
        known = list(modules)
    return OptionError(
        f"preserve_attributes: the model has no '{path}'", fix=near_matches(path, known)
    )
