from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.dialects.writable import check_writable, no_broadcast, no_plain_grid
from onnxq.errors import PassError
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype


def params(name: str = "t", kind: str = "int8", axis: int | None = None, block: int = 0) -> QParams:
    shape = (2, 2) if block else () if axis is None else (2,)
    scale, zero = np.full(shape, 0.5), np.zeros(shape, np.int64)
    return QParams(name, qtype(kind), scale, zero, axis=axis, block=block)


def test_all_that_have_a_reason_are_one_error() -> None:
    found = [(params("a"), "too wide"), (params("b"), ""), (params("c"), "too odd")]
    with pytest.raises(PassError) as caught:
        check_writable("Latin", found, fix="write Greek")
    assert caught.value.what.splitlines() == [
        "2 quantizers cannot be written as Latin:",
        "    'a' (activation): too wide",
        "    'c' (activation): too odd",
    ]
    assert caught.value.fix == "write Greek"


def test_without_reasons_nothing_is_raised() -> None:
    check_writable("Latin", [(params("a"), ""), (params("b"), "")], fix="write Greek")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (params(), ""),
        (params(axis=0), ""),
        (params(kind="float8e4m3fn"), "its codes are float8e4m3fn"),
        (params(axis=0, block=4), "it has one scale per block"),
    ],
)
def test_plain_grids(made: QParams, why: str) -> None:
    assert no_plain_grid(made) == why


def test_scales_per_channel_need_a_rank() -> None:
    known, unknown = gs.Variable("t", np.float32, (2, 3)), gs.Variable("t", np.float32)
    assert no_broadcast(params(axis=0), known) == ""
    assert no_broadcast(params(), unknown) == ""
    assert no_broadcast(params(axis=-1), unknown) == ""
    assert "infer-shapes" in no_broadcast(params(axis=0), unknown)
