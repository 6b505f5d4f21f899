"""Texts about tensors, kept in the metadata of a model: where ranges come from, what stays float.

One entry for each kind, a JSON object of texts by tensor. It survives all passes, so the files say
it too; `onnxq explain` and lint show it. Names that no longer exist do no harm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from onnxq.graph import Model

RANGE_SOURCES = "onnxq.range_sources"
"""Where the range of each quantizer comes from, by tensor."""
FLOAT_LAYERS = "onnxq.float_layers"
"""Why layers are float on purpose, by their first output."""


def note_texts(model: Model, key: str, texts: Mapping[str, str]) -> None:
    """Store the texts in `model`, instead of those it has."""
    for at in reversed(range(len(model.header.metadata_props))):
        if model.header.metadata_props[at].key == key:
            del model.header.metadata_props[at]
    if texts:
        made = model.header.metadata_props.add()
        made.key, made.value = key, json.dumps(dict(texts), ensure_ascii=False)


def texts_of(model: Model, key: str) -> dict[str, str]:
    """The texts in a model; whatever is not written like them is ignored."""
    for entry in model.header.metadata_props:
        if entry.key == key:
            try:
                found = json.loads(entry.value)
            except ValueError:
                return {}
            if isinstance(found, dict):
                return {str(k): v for k, v in found.items() if isinstance(v, str)}
    return {}


__all__ = ["FLOAT_LAYERS", "RANGE_SOURCES", "note_texts", "texts_of"]
