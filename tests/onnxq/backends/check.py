"""What every backend without a writer has in common."""

from __future__ import annotations

import pytest

import onnxq
from onnxq import demo
from onnxq.backend import Backend
from onnxq.discovery import find_backend
from onnxq.errors import BackendError


def training_only(name: str) -> Backend:
    """The backend of that name, after a check that converting for it is refused clearly."""
    backend = find_backend(name)
    assert not backend.writes
    with pytest.raises(BackendError, match=f"cannot write files for {name} yet") as caught:
        onnxq.convert(demo.quantize(demo.build()), name)
    assert "onnxq backends" in caught.value.fix
    return backend
