"""Dynamic ranges for TensorRT up to 10, as PPQ writes them.

    {"act_quant_info": {"<tensor>": 127 * scale, ...}}

The same numbers as 'tensorrt-ranges', under another key.
"""

from __future__ import annotations

from onnxq.formats.tensorrt_ranges import read_ranges, scales
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry
from onnxq.quant.qparam_table import QParamTable
from onnxq.side_files.side_file import SideFile

_KEY = "act_quant_info"
_FIX = 'expected {"act_quant_info": {"<tensor>": <absmax>, ...}}'


def write(table: QParamTable, model: Model) -> str:
    """The JSON text; absmax is exact, since 127 * float32 fits a double."""
    return strict_json.dump({_KEY: {name: 127.0 * s for name, s in scales(table).items()}})


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    document = Entry.parse(text, "a TensorRT range file of PPQ", _FIX)
    document.only((_KEY,))
    return read_ranges(Entry.of(document.value[_KEY], f"'{_KEY}'", _FIX).value)


def _recognises(text: str) -> bool:
    return set(strict_json.peek(text)) == {_KEY}


FORMAT = SideFile(
    "ppq-tensorrt",
    "absmax per tensor as JSON in PPQ's form (TensorRT <= 10)",
    write,
    read,
    recognises=_recognises,
    detection='JSON with "act_quant_info"',
    weights=False,
)
