"""TensorRT's calibration cache (TensorRT up to 10): text, one tensor a line.

    TRT-8601-EntropyCalibration2
    <tensor>: 3c008912

The eight hex digits are the big-endian float32 of scale = absmax / 127.
"""

from __future__ import annotations

import re
import struct

from onnxq.errors import LoadError, SaveError
from onnxq.formats.tensorrt_ranges import row_of, scales
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams
from onnxq.side_files.side_file import SideFile

HEADER = "TRT-8601-EntropyCalibration2"
_ENTRY = re.compile(r"(.+):\s*([0-9a-fA-F]{8})\s*", re.DOTALL)


def write(table: QParamTable, model: Model) -> str:
    """The text of the cache."""
    lines = [HEADER]
    for name, scale in scales(table).items():
        if not name or "\n" in name or "\r" in name:
            raise SaveError(
                f"tensor name {name!r} cannot be written to a calibration cache",
                fix="rename the tensor: names may not hold line breaks",
            )
        lines.append(f"{name}: {struct.pack('>f', scale).hex()}")
    return "\n".join(lines) + "\n"


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    # Not splitlines(): it also breaks at characters that a tensor name may hold.
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not lines[0].startswith("TRT-"):
        raise LoadError(
            "not a TensorRT calibration cache", fix="its first line is TRT-<version>-<calibrator>"
        )
    found: dict[str, QParams] = {}
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise LoadError(
                f"line {number} of the calibration cache is not '<tensor>: <8 hex digits>'",
                fix="check that the file is complete",
            )
        name, digits = entry.groups()
        if name in found:
            raise LoadError(
                f"line {number} of the calibration cache gives tensor '{name}' a second scale",
                fix="delete one of the two lines",
            )
        (scale,) = struct.unpack(">f", bytes.fromhex(digits))
        found[name] = row_of(name, scale, f"line {number} of the calibration cache")
    return QParamTable(list(found.values()))


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
