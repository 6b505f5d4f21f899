"""Strict JSON: what Python's own reader lets pass is named with its place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import LoadError
from onnxq.parsing import strict_json
from onnxq.parsing.strict_json import Entry, is_number

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(documents)
def test_parse_is_the_inverse_of_dump(document: Any) -> None:
    text = strict_json.dump(document)
    assert strict_json.parse(text, "x", "y") == document
    assert strict_json.peek(text) == (document if isinstance(document, dict) else {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1 column 1"),
        ('{"a": 1,\n "b": }', "line 2 column 7"),
        ('{"a": 1, "b": {"c": 1, "d": 2, "c": 3}}', "duplicate key 'c'"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 33 + "]" * 33, "nested too deeply"),
        ('{"a": ' * 33 + "1" + "}" * 33, "nested too deeply"),
        ('{"a":\n' + "1" * 5000 + "}", "line 2: a number of 5000 digits"),
        ('["\\ud800"]', "surrogate"),
        ('{"\\udc00": 1}', "surrogate"),
        ('"' + '\\"' * 100_000, "line 1 column 1: Unterminated"),
        ("\ufeff[]", "line 1 column 1"),
        ("[1\0]", "line 1 column 3"),
        ("[1_0]", "line 1 column 3"),
        ("[+1]", "line 1 column 2"),
        ("[0x1]", "line 1 column 3"),
        ("[\u0661]", "line 1 column 2"),
    ],
)
def test_what_is_not_json_is_told_with_its_place(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=f"not a thing: .*{why}") as caught:
        strict_json.parse(text, "a thing", "give a thing")
    assert caught.value.fix == "give a thing"
    if "duplicate" not in why:
        assert strict_json.peek(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 32 + "]" * 32,
        '{"' + "[" * 1000 + '": 1}',
        r'["\"", "\\", "[[[", "\ud83d\ude00"]',
        "[" + "[]," * 1000 + "[]]",
    ],
)
def test_what_is_within_the_limits_is_read(text: str) -> None:
    assert strict_json.parse(text, "a thing", "give a thing") == json.loads(text)


def test_a_document_is_measured_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "LARGEST", 5)
    with pytest.raises(LoadError, match="6 characters, at most 5 are allowed"):
        strict_json.parse("[1, 2]", "a thing", "give a thing")


def test_names_stay_readable_and_nan_is_never_written() -> None:
    assert "größe" in strict_json.dump({"größe": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        strict_json.dump(float("nan"))


@pytest.mark.parametrize("value", [0, -1, 1.5, 2**1000, 1e308])
def test_numbers(value: Any) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, None, "1", [1], float("nan"), float("-inf"), 10**400])
def test_not_numbers(value: Any) -> None:
    assert not is_number(value)


def entry(**value: Any) -> Entry:
    return Entry.of(value, "row 3", "do so")


def test_values() -> None:
    found = entry(n=1.5, i=8.0, ns=[1, 2.5], js=[-1.0, 3], t="a", b=True)
    assert found.number("n") == 1.5
    assert found.integer("i") == 8
    assert type(found.integer("i")) is int
    assert found.numbers("ns") == [1.0, 2.5]
    assert found.integers("js") == [-1, 3]
    assert found.text("t") == "a"
    assert found.choice("b", True, False) is True
    assert entry(i=2**61 + 1).integer("i") == 2**61 + 1
    found.only(["n", "i", "ns", "js", "t"], ["b", "other"])


@pytest.mark.parametrize(
    ("value", "ask", "why"),
    [
        ({"a": "1"}, lambda e: e.number("a"), "'a' is \"1\", not a finite number"),
        ({"a": 1.5}, lambda e: e.integer("a"), "'a' is 1.5, not an integer"),
        ({"a": 2**62}, lambda e: e.integer("a"), "does not fit in 64 bits"),
        ({"a": -1e300}, lambda e: e.integer("a"), "does not fit in 64 bits"),
        ({"a": True}, lambda e: e.integer("a"), "'a' is true"),
        ({"a": 1}, lambda e: e.numbers("a"), "not a list of numbers"),
        ({"a": []}, lambda e: e.numbers("a"), "not a list of numbers"),
        ({"a": [1, None]}, lambda e: e.numbers("a"), "'a[1]' is null"),
        ({"a": [1, 0.5]}, lambda e: e.integers("a"), "'a[1]' is 0.5"),
        ({"a": ""}, lambda e: e.text("a"), "not a non-empty string"),
        ({"a": 3}, lambda e: e.text("a"), "not a non-empty string"),
        ({"a": 1}, lambda e: e.choice("a", True, False), "'a' is 1, not true or false"),
        ({"a": "true"}, lambda e: e.choice("a", True), "not true"),
        ({}, lambda e: e.only(["a"]), "key 'a' is missing"),
        ({"scael": 1}, lambda e: e.only([], ["scale"]), "unknown key 'scael'; did you mean"),
        ({"a": "x" * 100}, lambda e: e.number("a"), "xxx..., not a finite number"),
    ],
)
def test_what_is_wrong_names_place_and_key(value: dict[str, Any], ask: Any, why: str) -> None:
    with pytest.raises(LoadError) as caught:
        ask(entry(**value))
    assert caught.value.what.startswith("row 3: ")
    assert why in caught.value.what
    assert caught.value.fix == "do so"


def test_an_entry_is_an_object() -> None:
    with pytest.raises(LoadError, match=r"row 3 is \[1\], not an object"):
        Entry.of([1], "row 3", "do so")


WHOLE = '{"a": [1.5, "two", true, null],\n "b": {"c": -2e5}}'


@pytest.mark.parametrize("length", range(1, len(WHOLE)))
def test_every_beginning_of_a_document_is_told_to_be_cut_off(length: int) -> None:
    found = strict_json.damage(WHOLE[:length])
    assert found is not None
    assert re.fullmatch(r"not complete JSON: line [12] column \d+", found)


@pytest.mark.parametrize("text", [WHOLE, "", "no JSON", "3"])
def test_what_is_whole_or_something_else_is_not_cut_off(text: str) -> None:
    assert strict_json.damage(text) is None


def test_a_mistake_in_the_middle_is_told_as_such() -> None:
    assert strict_json.damage('{"a": 1\n "b": 2}') == (
        "not JSON: line 2 column 2: Expecting ',' delimiter"
    )


@pytest.mark.parametrize("text", ["[" * 100_000 + "]" * 100_000, "[" + "1" * 5000 + "]"])
def test_what_is_beyond_a_limit_is_told_as_such(text: str) -> None:
    found = strict_json.damage(text)
    assert found is not None
    assert found.startswith("JSON that cannot be read: ")
