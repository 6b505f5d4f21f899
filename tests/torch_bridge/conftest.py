"""Every test draws the same numbers, on one thread."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")


@pytest.fixture(autouse=True)
def repeatable() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
