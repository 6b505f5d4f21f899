"""Messages about many layers become one line."""

from __future__ import annotations

from onnxq.views.alike import merged, pattern


def test_notes_that_differ_in_names_are_one() -> None:
    notes = [f"'conv{i}' stays float, as its file says" for i in range(12)]
    assert merged(["first", *notes, "last"]) == [
        "first",
        "'conv0' stays float, as its file says (12 alike: conv0, conv1, conv2, …)",
        "last",
    ]
    assert merged(notes[:2]) == [
        "'conv0' stays float, as its file says (2 alike: conv0, conv1)",
    ]


def test_the_same_note_is_told_once() -> None:
    assert merged(["a note", "other", "a note"]) == ["a note (2 times)", "other"]


def test_notes_that_say_other_things_stay() -> None:
    notes = ["3 weights are float", "5 weights are float", "'x' is float", "'x' has no range"]
    assert merged(notes) == notes
    both = ["'x' was 3, then 4", "'x' was 5, then 6"]
    assert merged(both) == both  # of one layer: nothing is left out


def test_an_apostrophe_is_no_quote() -> None:
    notes = ["its file's range of 'a' isn't used", "its file's range of 'b' isn't used"]
    assert merged(notes) == ["its file's range of 'a' isn't used (2 alike: a, b)"]


def test_numbers_in_names_are_not_numbers() -> None:
    assert pattern("int8 at 'w1' is -3..1.5e-07 at 16 bits") == "int8 at '' is 0..0 at 0 bits"
