"""onnxq's own table as a file: everything a model's quantization says, exactly."""

from __future__ import annotations

from onnxq.errors import LoadError, QParamsError
from onnxq.graph import Model
from onnxq.parsing import strict_json
from onnxq.quant.qparam_table import JSON_SCHEMA, QParamTable
from onnxq.side_files.side_file import SideFile


def write(table: QParamTable, model: Model) -> str:
    """The JSON text."""
    return table.dumps() + "\n"


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    try:
        return QParamTable.loads(text)
    except QParamsError as error:
        raise LoadError(error.what, fix=error.fix) from error


def _recognises(text: str) -> bool:
    return strict_json.peek(text).get("schema") == JSON_SCHEMA


FORMAT = SideFile(
    "onnxq",
    "onnxq's own table: types, ranges, axes, blocks and readers, exactly",
    write,
    read,
    recognises=_recognises,
    detection=f'JSON with "schema": "{JSON_SCHEMA}"',
    readers=True,
)
