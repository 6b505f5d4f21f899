"""Errors of usage: the words of all other errors, and a next step."""

from __future__ import annotations

import pytest

from tests.onnxq.conftest import Run


@pytest.mark.parametrize(
    ("words", "what", "step"),
    [
        (("quantize", "m", "-o", "o", "--keep-float", "fc"), "takes a whole number", "--settings"),
        (("quantize", "m", "-o", "o", "--keep-float", "-1"), "takes 0 or more", "--help"),
        (("quantize", "m", "-o", "o", "--target-sqnr", "x"), "it takes a number", "--help"),
        (("quantize", "m"), "Missing option '--output'", "quantize --help"),
        (("verify", "a", "b", "--session", "fast"), "'fast' is not one of", "--help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_usage_has_a_next_step(
    onnxq: Run, words: tuple[str, ...], what: str, step: str
) -> None:
    code, _, err = onnxq(*words)
    assert code == 2
    assert "Input should" not in err
    assert what in err[err.index("error: ") :]
    assert step in err[err.index("next: ") :]
