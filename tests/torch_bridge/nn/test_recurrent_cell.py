"""Cells taken apart compute what torch's do."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from torch_bridge.nn.recurrent_cell import RecurrentCell  # noqa: E402


@pytest.mark.parametrize("make", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(make: Any, bias: bool) -> None:
    source = make(5, 4, bias=bias)
    made = RecurrentCell(source)
    x = torch.randn(2, 5)
    state = (torch.randn(2, 4), torch.randn(2, 4)) if make is nn.LSTMCell else torch.randn(2, 4)
    for call in ((x,), (x, state), (x[0],)):
        torch.testing.assert_close(made(*call), source(*call))
