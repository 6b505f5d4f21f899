"""Errors say what is wrong and what to do next."""

from __future__ import annotations

import pickle

import pytest

from onnxq import errors
from onnxq.errors import OnnxqError, near_matches

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, OnnxqError)
]


def test_the_kinds_are_the_documented_ones() -> None:
    assert {kind.__name__ for kind in KINDS} == {
        *("OnnxqError", "LoadError", "SaveError", "InvalidModelError", "UnsupportedModelError"),
        *("QParamsError", "PassError", "OptionError", "BackendError", "VerifyError"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_message_holds_what_and_next(kind: type[OnnxqError]) -> None:
    error = kind("scale of 'x' is 0", fix="recalibrate 'x'")
    assert (error.what, error.fix) == ("scale of 'x' is 0", "recalibrate 'x'")
    assert str(error) == "scale of 'x' is 0\n  next: recalibrate 'x'"


def test_the_next_step_must_be_given() -> None:
    with pytest.raises(TypeError, match="fix"):
        OnnxqError("what")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("to-qdqq", ["to-qdq", "read-qdq", "drop"], "did you mean 'to-qdq' or 'read-qdq'?"),
        ("opsett", ["opset", "pack"], "did you mean 'opset'?"),
        ("zzz", ["b", "a"], "choose from: a, b"),
        ("zzz", ["a" * 150, "b" * 150], f"choose from: {'a' * 150} and 1 more"),
    ],
)
def test_near_matches(word: str, known: list[str], said: str) -> None:
    assert near_matches(word, known) == said


def test_at_most_three_near_matches() -> None:
    assert near_matches("fold", [f"fold{i}" for i in range(9)]).count("'") == 6


def test_errors_cross_process_boundaries() -> None:
    error = errors.LoadError("no such file", fix="check the path")
    error.add_note("in pass 'x'")
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), twin.what, twin.fix) == (errors.LoadError, error.what, error.fix)
    assert twin.__notes__ == error.__notes__


def test_near_matches_of_nothing() -> None:
    assert errors.near_matches("x", []) == "there are none"


def test_everything_a_dialect_cannot_write_is_one_error() -> None:
    error = errors.cannot_write("X", ["'a': why", "'b': why", "'a': why"], fix="do this")
    assert error.what == "2 quantizers cannot be written as X:\n    'a': why\n    'b': why"
    assert error.fix == "do this"
    many = errors.cannot_write("X", (f"'{i}'" for i in range(25)), fix="do this").what
    assert many.startswith("25 quantizers")
    assert "'19'" in many
    assert "'20'" not in many
    assert many.endswith("... and 5 more")
    assert errors.cannot_write("X", ["'a'"], fix="").what.startswith("1 quantizer cannot")
