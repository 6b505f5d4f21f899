"""Pages of commands, errors, documents and words: `python -m tests.suites.reference_pages`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from onnxq import errors
from onnxq.cli.commands import app
from onnxq.glossary import words
from tests.suites.json_page import json_lines
from tests.suites.snippets import ROOT

NEXT = {
    "LoadError": "check the path; export or download the file again",
    "SaveError": "check space and permissions of the folder; the old files are still there",
    "InvalidModelError": "export the model again; `onnx.checker` shows the same fault",
    "UnsupportedModelError": "`--explain` and `onnxq inspect` show the part that is meant",
    "QParamsError": "quantize again: no runtime can use such parameters",
    "PassError": "run the passes that it names first, or leave it out",
    "OptionError": "the message lists similar names; `onnxq COMMAND --help` lists all",
    "VerifyError": "`onnxq verify A B --per-layer` shows where the difference begins",
    "BackendError": "`--allow-requantize` moves what the target lacks; or choose another backend",
}
"""What helps in general; each message has a next step of its own."""


def cli_lines() -> Iterator[str]:
    """The page of commands, line by line."""
    yield "# Commands and options"
    yield ""
    yield "`onnxq COMMAND --help` shows the same. The command line at a glance is on"
    yield "[its own page](command-line.md)."
    group: Any = typer.main.get_command(app)
    for name, command in sorted(group.commands.items()):
        yield from ("", f"## onnxq {name}", "", _one_line(command.help))
        arguments = " ".join(_metavar(p) for p in command.params if p.param_type_name == "argument")
        yield from ("", "```text", f"onnxq {name} {arguments} [options]".replace("  ", " "), "```")
        rows = [p for p in command.params if not getattr(p, "hidden", False)]
        if rows:
            yield from ("", "| | |", "|---|---|")
            yield from map(_row, rows)


def _metavar(parameter: Any) -> str:
    return parameter.name.upper() + ("..." if parameter.nargs == -1 else "")


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        names = f"`{_metavar(parameter)}`"
    else:
        names = ", ".join(f"`{each}`" for each in parameter.opts)
    default = parameter.default
    stated = (
        default is not None and default is not False and default != () and not callable(default)
    )
    shown = f" Default: `{default}`." if stated and str(default) else ""
    required = " Required." if parameter.required and names.startswith("`-") else ""
    text = _one_line(getattr(parameter, "help", None))
    return f"| {names} | {text}{required}{shown} |"


def error_lines() -> Iterator[str]:
    """The page of errors, line by line."""
    yield from ("# Errors", "")
    yield "Every error says what is wrong and where, and after `next:` what to do about it. With"
    yield "`--json` the same is a [document](json.md#error) on standard output; `--debug` shows the"
    yield "traceback. In Python they are exceptions of `onnxq.errors`, with `what` and `fix`."
    yield from ("", "| exit code | meaning |", "|---|---|")
    yield "| 0 | done, and proven where there is something to prove |"
    yield "| 1 | the proof failed, or the target will reject the files (`onnxq lint`) |"
    yield "| 2 | bad usage or bad model: nothing was written |"
    yield "| 130 | Ctrl-C |"
    yield "| 141 | the pipe was closed |"
    yield from ("", "| error | meaning | what helps |", "|---|---|---|")
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.OnnxqError) and name != "OnnxqError":
            yield f"| `{name}` | {_one_line(inspect.getdoc(kind))} | {NEXT[name]} |"
    yield ""
    yield "What [lint](lint.md) and the [report](report.md) find in models is on their pages."


def glossary_lines() -> Iterator[str]:
    """The page of words, line by line."""
    yield from ("# Glossary", "")
    yield "What the words on these pages and in messages mean. `onnxq explain step` prints one of"
    yield "them."
    for word in words():
        yield from ("", f"## {word.name}", "", word.text)
        also = f"Also: {', '.join(word.also)}. " if word.also else ""
        title = word.page.partition("#")[0]
        more = f"More: [{title}]({word.page})." if title else ""
        if also or more:
            yield from ("", f"{also}{more}".strip())


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split()).replace("|", "\\|")


def pages() -> dict[str, str]:
    """The pages by their names."""
    found = {
        "cli.md": cli_lines(),
        "errors.md": error_lines(),
        "glossary.md": glossary_lines(),
        "json.md": json_lines(),
    }
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


if __name__ == "__main__":
    for name, text in pages().items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")
