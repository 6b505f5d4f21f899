"""Commands as a shell and the command line read them."""

from __future__ import annotations

import json
import re
import shlex

import pytest
import typer.main

from onnxq.cli.commands import app
from onnxq.quant.settings import Settings
from onnxq.reporting.commands import DATA, FLOAT, RULES, Names, rules, selector

NAMES = Names("m odel.onnx", "onnxruntime", None, "a.onnx", "f.onnx", "d.npz")
COMMAND = typer.main.get_command(app)


def parsed(line: str) -> dict[str, object]:
    """The parameters of the command that a line calls; raises if it would not be taken."""
    words = shlex.split(line)
    assert words[0] == "onnxq"
    with COMMAND.make_context("onnxq", words[1:]) as context:
        name, command, rest = COMMAND.resolve_command(context, words[1:])  # type: ignore[attr-defined]
        with command.make_context(name, list(rest), parent=context) as inner:
            return dict(inner.params)


@pytest.mark.parametrize(
    "line",
    [
        NAMES.quantize("--settings", RULES),
        NAMES.quantize("--target-sqnr", "25"),
        NAMES.quantize("--method", "min-max"),
        NAMES.quantize("--report", "report.html"),
        NAMES.convert("--allow-requantize"),
        NAMES.convert("--variant", "avx2"),
        NAMES.explain("a tensor"),
        NAMES.report(bench="2"),
        NAMES.verify(),
    ],
)
def test_every_command_is_one(line: str) -> None:
    parsed(line)


def test_names_are_those_of_the_user() -> None:
    found = parsed(NAMES.report(data="o'ther.npz"))
    assert str(found["model"]) == "m odel.onnx"
    assert str(found["against"]) == "a.onnx"
    assert str(found["data"]) == "o'ther.npz"
    assert str(parsed(NAMES.quantize())["model"]) == "f.onnx"


def test_what_is_not_known_is_in_capitals() -> None:
    line = Names("m.onnx", "tensorrt", "fast").quantize()
    assert FLOAT in line
    assert DATA in line
    assert "--variant fast" in line


def test_a_name_that_looks_like_an_option() -> None:
    found = parsed(Names("-m.onnx", "tvm").explain("--json"))
    assert (str(found["model"]), found["tensor"], found["as_json"]) == ("-m.onnx", "--json", False)


@pytest.mark.parametrize("name", ["a.b", "/a/b", "a*", "x[0]", "re:odd", "(a|b)?", "'\""])
def test_a_selector_means_this_layer(name: str) -> None:
    (rule,) = Settings.loads(rules([name], "float")).rules
    assert rule.matches([name], [])
    assert not rule.matches(["other"], [])
    assert rule.change.float
    if selector(name) != name:
        assert re.fullmatch(selector(name)[3:], name)


def test_rules_for_several_layers() -> None:
    assert json.loads(rules(["a", "b"], {"bits": 16})) == [["a", {"bits": 16}], ["b", {"bits": 16}]]
