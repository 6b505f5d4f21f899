"""Where the range of each quantizer comes from, kept in the metadata of a model.

One entry, a JSON object of texts by tensor. It survives all passes, so the files say it too, and
`onnxq explain` shows it. Names that no longer exist do no harm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from onnxq.graph import Model

KEY = "onnxq.range_sources"
"""The metadata_props key."""


def note_sources(model: Model, sources: Mapping[str, str]) -> None:
    """Store the texts in `model`, instead of those it has."""
    for at in reversed(range(len(model.header.metadata_props))):
        if model.header.metadata_props[at].key == KEY:
            del model.header.metadata_props[at]
    if sources:
        made = model.header.metadata_props.add()
        made.key, made.value = KEY, json.dumps(dict(sources), ensure_ascii=False)


def sources_of(model: Model) -> dict[str, str]:
    """The texts in a model; whatever is not written like them is ignored."""
    for entry in model.header.metadata_props:
        if entry.key == KEY:
            try:
                found = json.loads(entry.value)
            except ValueError:
                return {}
            if isinstance(found, dict):
                return {str(k): v for k, v in found.items() if isinstance(v, str)}
    return {}


__all__ = ["KEY", "note_sources", "sources_of"]
