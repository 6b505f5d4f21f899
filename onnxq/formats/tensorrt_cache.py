"""TensorRT's calibration cache (TensorRT up to 10): text, one tensor per line.

    TRT-8601-EntropyCalibration2
    <tensor>: 3c008912

The eight hex digits are the big-endian float32 of scale = absmax / 127.
"""

from __future__ import annotations

import re
import struct

from onnxq.errors import LoadError, SaveError
from onnxq.formats.tensorrt_ranges import scales
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.side_files.rows import make_row
from onnxq.side_files.side_file import SideFile
from onnxq.side_files.tensor_lines import tensor_lines

HEADER = "TRT-8601-EntropyCalibration2"
_FORM = "'<tensor>: <8 hex digits>'"
_LINE = re.compile(r"(.+):\s*([0-9a-fA-F]{8})\s*")


def write(table: QParamTable, model: Model) -> str:
    """The text of the cache."""
    lines = [HEADER]
    for name, scale in scales(table).items():
        if not name or "\n" in name or "\r" in name:
            raise SaveError(
                f"tensor name {name!r} cannot be written to a calibration cache",
                fix="rename the tensor: names must not contain line breaks",
            )
        lines.append(f"{name}: {struct.pack('>f', scale).hex()}")
    return "\n".join(lines) + "\n"


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    header, _, rest = text.partition("\n")
    if not _recognises(header):
        raise LoadError(
            "not a TensorRT calibration cache", fix="its first line is TRT-<version>-<calibrator>"
        )
    table = QParamTable()
    for entry, found in tensor_lines(f"\n{rest}", _LINE, _FORM):
        (scale,) = struct.unpack(">f", bytes.fromhex(found[2]))
        table.add(make_row(entry, found[1], 8, True, scale, 0))
    return table


def _recognises(text: str) -> bool:
    return text.startswith("TRT-")


FORMAT = SideFile(
    "tensorrt-cache",
    "TensorRT's calibration cache (TensorRT <= 10)",
    write,
    read,
    recognises=_recognises,
    detection="text whose first line begins with TRT-",
    suffix=".cache",
    weights=False,
)
