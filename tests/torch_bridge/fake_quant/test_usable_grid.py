"""Grids that no file can hold are told."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from tests.torch_bridge.observers.oracle import SPECS  # noqa: E402
from torch_bridge.fake_quant.fixed import Fixed  # noqa: E402
from torch_bridge.fake_quant.usable_grid import grid_fault  # noqa: E402
from torch_bridge.observers import Observer  # noqa: E402


@pytest.mark.parametrize(
    ("spec", "scale", "zero_point", "words"),
    [
        ("int8", 0.1, 0, ""),
        ("uint8", 0.1, 7, ""),
        ("int8", -0.1, 0, "the scale -0.1, which is not positive"),
        ("int8", float("nan"), 0, "the scale nan"),
        ("int8", 0.1, 3, "the zero point 3, which must be 0"),
        ("uint8", 0.1, 300, "the zero point 300, which must be a whole number from 0 to 255"),
    ],
)
def test_a_fault_is_told(spec: str, scale: float, zero_point: int, words: str) -> None:
    quantizer = Fixed(SPECS[spec], Observer(SPECS[spec]), "x")
    quantizer.is_own = True
    quantizer.scale = torch.tensor(scale)
    quantizer.zero_point = torch.tensor(zero_point)
    fault = grid_fault(quantizer)
    assert (fault is None) == (not words)
    assert fault is None or words in fault[0]
