"""A third-party side file: the scale of every activation, as a table.

tensor,scale
conv1.out,0.029999999329447746
"""

import csv
import io

import numpy as np

from onnxq.errors import LoadError, OnnxqError
from onnxq.graph import Model
from onnxq.quant import QParams, QParamTable, Role, qtype
from onnxq.side_files import SideFile

HEADER = ["tensor", "scale"]


def write(table: QParamTable, model: Model) -> str:
    """The text of the table."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(HEADER)
    out.writerows([row.tensor, repr(float(row.scale))] for row in table.of(Role.ACTIVATION))
    return text.getvalue()


def read(text: str, model: Model) -> QParamTable:
    """Inverse of `write`."""
    lines = list(csv.reader(io.StringIO(text)))
    if lines[:1] != [HEADER]:
        raise LoadError("not a table of scales", fix="its first line is 'tensor,scale'")
    table = QParamTable()
    for number, line in enumerate(lines[1:], 2):
        try:
            tensor, scale = line
            table.add(QParams(tensor, qtype("int8"), np.asarray(float(scale)), np.zeros(())))
        except (ValueError, OnnxqError) as error:
            raise LoadError(f"line {number}: {error}", fix="write 'tensor,scale'") from error
    return table


def recognises(content: str) -> bool:
    """Whether it is such a table; a function, not a lambda, so that conversions can be pickled."""
    return content.startswith(",".join(HEADER) + "\n")


FORMAT = SideFile(
    "mychip-scales",
    "scale per activation as CSV",
    write,
    read,
    recognises=recognises,
    detection="text whose first line is 'tensor,scale'",
    suffix=".csv",
    weights=False,
)
