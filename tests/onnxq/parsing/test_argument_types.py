"""Arguments of the wrong type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.parsing.argument_types import FLAG, INTEGER, NUMBER, PATH, takes


@takes(path=PATH, count=INTEGER, limit=(*NUMBER, None), flag=FLAG, rest=str)
def function(
    path: str | Path,
    *rest: str,
    count: int = 1,
    limit: float | None = None,
    flag: bool = False,
    free: Any = None,
) -> str:
    """Its own words."""
    return f"{path} {rest} {count} {limit} {flag} {free}"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"count": np.int64(3), "limit": 2, "flag": np.bool_(True)},
        {"limit": np.float32(0.5), "free": object},
        {"limit": None},
    ],
)
def test_what_fits_is_passed_on(given: dict[str, Any]) -> None:
    assert function(Path("a"), "b", "c", **given).startswith("a ('b', 'c')")
    assert function.__doc__ == "Its own words."
    assert function.__name__ == "function"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: function(None), "expects str or PathLike for 'path', not None"),
        (lambda: function(path=b"a"), "expects str or PathLike for 'path', not a bytes"),
        (lambda: function("a", count=True), "expects int for 'count', not a bool"),
        (lambda: function("a", count=1.0), "expects int for 'count', not a float"),
        (lambda: function("a", limit="1"), "expects int or float or None for 'limit', not a str"),
        (lambda: function("a", flag=1), "expects bool for 'flag', not an int"),
        (lambda: function("a", "b", 3), "expects str for 'rest', not an int"),
    ],
)
def test_what_does_not_fit_is_named(call: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError) as failed:
        call()
    assert str(failed.value) == f"function() {told}"


def test_python_says_what_is_missing_by_itself() -> None:
    with pytest.raises(TypeError, match="path"):
        function()


def test_a_model_of_onnx_is_told_how_to_become_one_of_onnxq() -> None:
    with pytest.raises(TypeError, match=r"not a ModelProto; make a Model .* onnxq\.from_proto"):
        onnxq.quantize(onnx.ModelProto(), "onnxruntime")  # type: ignore[arg-type]
