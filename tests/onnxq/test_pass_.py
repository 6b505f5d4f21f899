"""A pass is its options: reading them, checking them, writing them; and the trace it leaves."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Optional

import pytest

from onnxq.errors import OptionError, PassError
from onnxq.graph import Model, from_proto
from onnxq.pass_ import Option, Pass, Quoted, Skip, Trace
from tests.models.zoo_build import Build


@dataclass(frozen=True)
class Everything(Pass):
    """One option of each kind.

    More words, which a listing leaves out.
    """

    name: ClassVar[str] = "everything"

    count: int = 3
    ratio: float = 0.5
    flag: bool = False
    text: str = "a"
    mode: Literal["fast", "exact"] = "fast"
    bits: Literal[4, 8] = 8
    maybe: int | None = None
    maybe_text: str | None = None
    maybe_mode: Literal["up", "down"] | None = None
    old_style: Optional[float] = None  # noqa: UP045  (the spelling under test)
    made: str = field(default_factory=lambda: "fresh")


@dataclass(frozen=True)
class Needy(Pass):
    """Has an option without a default."""

    name: ClassVar[str] = "needy"
    path: str
    scale: float = 1.0


@dataclass(frozen=True)
class Plain(Pass):
    """Takes no options."""

    name: ClassVar[str] = "plain"


def tiny_model() -> Model:
    b = Build()
    return from_proto(b.model(b.op("Relu", b.input("x", [2]), out="y")))


# -- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("count", "-7", -7),
        ("ratio", "1e-3", 1e-3),
        ("ratio", "2", 2.0),
        ("ratio", "inf", float("inf")),
        ("flag", "true", True),
        ("flag", "False", False),
        ("text", "none", "none"),
        ("text", "", ""),
        ("mode", "exact", "exact"),
        ("bits", "4", 4),
        ("maybe", "none", None),
        ("maybe", "9", 9),
        ("maybe_text", "none", None),
        ("maybe_text", Quoted("none"), "none"),
        ("maybe_mode", "none", None),
        ("maybe_mode", "down", "down"),
        ("old_style", "0.25", 0.25),
        ("old_style", "none", None),
    ],
)
def test_option_texts_become_typed_values(option: str, text: str, value: Any) -> None:
    got = getattr(Everything.from_options({option: text}), option)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("count", "1.5", "a value of type int"),
        ("count", "", "a value of type int"),
        ("count", "none", "a value of type int"),
        ("ratio", "much", "a value of type float"),
        ("ratio", "nan", "a value of type float"),
        ("flag", "1", "true or false"),
        ("flag", "yes", "true or false"),
        ("mode", "exakt", "did you mean 'exact'?"),
        ("mode", "none", "choose from: exact, fast"),
        ("bits", "16", "choose from: 4, 8"),
        ("maybe", "x", "a value of type int"),
        ("maybe_mode", "upp", "did you mean 'up'?"),
    ],
)
def test_ill_typed_values_name_option_pass_and_remedy(option: str, text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        Everything.from_options({option: text})
    assert caught.value.what == f"option '{option}' of 'everything' cannot be '{text}'"
    assert said in caught.value.fix


def test_unknown_option_lists_near_matches() -> None:
    with pytest.raises(OptionError) as caught:
        Everything.from_options({"cuont": "1"})
    assert caught.value.what == "pass 'everything' has no option 'cuont'"
    assert caught.value.fix == "did you mean 'count'?"


def test_unknown_option_of_a_pass_without_options() -> None:
    with pytest.raises(OptionError) as caught:
        Plain.from_options({"x": "1"})
    assert caught.value.fix == "'plain' takes no options"


def test_hyphens_and_underscores_are_the_same_option() -> None:
    assert Everything.from_options({"maybe-text": "t"}) == Everything(maybe_text="t")
    with pytest.raises(OptionError, match="duplicate option 'maybe_text' of 'everything'"):
        Everything.from_options({"maybe-text": "t", "maybe_text": "u"})


def test_required_option() -> None:
    with pytest.raises(OptionError) as caught:
        Needy.from_options({"scale": "2"})
    assert caught.value.what == "pass 'needy' needs option 'path'"
    assert caught.value.fix == "write needy{path=...}"
    assert Needy.from_options({"path": "a/b.json"}) == Needy("a/b.json")
    option = Needy.options()["path"]
    assert option.required
    assert option.default is None
    assert not Needy.options()["scale"].required


def test_default_factory_is_a_default() -> None:
    option = Everything.options()["made"]
    assert (option.required, option.default) == (False, "fresh")
    assert str(Everything()) == "everything"


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("count", "int"),
        ("flag", "bool"),
        ("mode", "fast|exact"),
        ("bits", "4|8"),
        ("maybe", "int (optional)"),
        ("maybe_mode", "up|down (optional)"),
        ("old_style", "float (optional)"),
    ],
)
def test_kind_as_a_user_reads_it(option: str, name: str) -> None:
    assert Everything.options()[option].kind_name == name


@pytest.mark.parametrize("hint", [tuple[str, ...], list, dict[str, int], int | str])
def test_a_field_without_text_form_is_a_programming_fault(hint: Any) -> None:
    odd = dataclasses.make_dataclass(
        "Odd", [("values", hint, None)], bases=(Pass,), frozen=True, namespace={"name": "odd"}
    )
    with pytest.raises(TypeError, match="option 'values' has type"):
        odd.options()


# -- the text form --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Plain(), "plain"),
        (Everything(), "everything"),
        (Everything(count=4, flag=True), "everything{count=4 flag=true}"),
        (Everything(maybe=0), "everything{maybe=0}"),
        (Needy("p", scale=2.5), "needy{path=p scale=2.5}"),
        (Needy("a b"), "needy{path='a b'}"),
        (Needy(""), "needy{path=''}"),
        (Needy("it's"), r"needy{path='it\'s'}"),
        (Needy("none"), "needy{path='none'}"),
        (Needy("C:\\a"), "needy{path=C:\\a}"),
        (Needy("C:\\a b"), r"needy{path='C:\\a b'}"),
        (Needy("tab\there"), "needy{path='tab\there'}"),
    ],
)
def test_text_form(step: Pass, text: str) -> None:
    assert str(step) == text


def test_options_at_their_default_are_left_out_even_if_given() -> None:
    assert str(Everything(count=3, ratio=0.5)) == "everything"


@pytest.mark.parametrize("value", [None, True, False, -3, 1e-45, 0.1, 1e300, "plain", "x/y.z"])
def test_format_writes_bare_words(value: Any) -> None:
    text = Option.format(value)
    assert "'" not in text
    kind = type(value) if value is not None else str
    assert Option("o", kind, True, False, None).parse(text, "p") == value


# -- the class ------------------------------------------------------------------------------


def test_summary_is_the_first_line() -> None:
    assert Everything.summary() == "One option of each kind."


def test_summary_without_docstring_is_empty() -> None:
    class Silent(Pass):
        name: ClassVar[str] = "silent"

    assert Silent.summary() == ""


def test_a_pass_is_a_value() -> None:
    assert Everything(count=1) == Everything(count=1) != Everything(count=2)
    assert len({Everything(), Everything(), Plain()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Everything().count = 5  # type: ignore[misc]


def test_a_pass_without_run_says_what_to_define() -> None:
    with pytest.raises(PassError, match=r"Plain has no run\(\)\n  next: define run"):
        Plain().run(tiny_model(), Trace("plain"))


# -- the trace ------------------------------------------------------------------------------


def test_trace_records_nodes_and_names() -> None:
    node = tiny_model().nodes("Relu")[0]
    trace = Trace("p")
    trace.rewrote(node)
    trace.rewrote(node, "into something")
    trace.rewrote("tensor t")
    trace.skip(node, "two readers")
    trace.skip("w", "not constant")
    trace.note("opset raised")
    label = trace.rewrites[0]
    assert node.name in label
    assert "Relu" in label
    assert trace.rewrites == [label, f"{label}: into something", "tensor t"]
    assert trace.skips == [Skip(label, "two readers"), Skip("w", "not constant")]
    assert trace.notes == ["opset raised"]


def test_trace_as_json() -> None:
    trace = Trace("p", seconds=0.12345678)
    trace.rewrote("a")
    trace.skip("b", "because")
    assert json.loads(json.dumps(trace.to_json())) == {
        "pass": "p",
        "rewrites": ["a"],
        "skips": [{"where": "b", "reason": "because"}],
        "notes": [],
        "seconds": 0.123457,
    }
