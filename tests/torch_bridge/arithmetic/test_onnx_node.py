from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic.onnx_node import is_dynamo_export, is_export  # noqa: E402


def test_nothing_is_exported_outside_of_exporters() -> None:
    assert not is_export()
    assert not is_dynamo_export()
