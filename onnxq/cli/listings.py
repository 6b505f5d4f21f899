"""The commands that list passes, backends and side-file formats, or show one in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.table import Table

from onnxq import discovery
from onnxq.backend import Backend, Output, backends
from onnxq.cli.completion import backend_names, format_names, pass_names
from onnxq.cli.options import Json, show
from onnxq.discovery import Broken, find
from onnxq.pass_ import Option, Pass
from onnxq.side_files.side_file import SideFile, formats
from onnxq.views.screen import new_table, shown, shown_lines

T = TypeVar("T")
Rows = Iterable[tuple[str, Iterable[str] | str]]
"""What one entry is, in full: pairs of a word and its lines."""


def _name(names: Callable[[str], list[str]]) -> Any:
    text = "Show this one in full."
    return typer.Argument(help=text, show_default=False, autocompletion=names)


PassName = Annotated[str | None, _name(pass_names)]
BackendName = Annotated[str | None, _name(backend_names)]
FormatName = Annotated[str | None, _name(format_names)]


def passes_(name: PassName = None, as_json: Json = False) -> None:
    """List the passes, or show one with its options."""
    _show(as_json, name, discovery.passes(), "pass", "passes", pass_document, pass_rows)


def backends_(name: BackendName = None, as_json: Json = False) -> None:
    """List the backends, or show one: what it accepts, its files, how they are proven."""
    _show(as_json, name, backends(), "backend", "backends", Backend.to_json, backend_rows)


def formats_(name: FormatName = None, as_json: Json = False) -> None:
    """List the side-file formats, or show one and how it is recognised."""
    _show(as_json, name, formats(), "format", "formats", SideFile.to_json, format_rows)


def _show(
    as_json: bool,
    name: str | None,
    known: Mapping[str, T | Broken],
    kind: str,
    command: str,
    document: Callable[[T], dict[str, Any]],
    rows: Callable[[T], Rows],
) -> None:
    """Print all that is `known`, or the one called `name`."""
    if name is not None:
        found: T = find(name, known, kind, f"onnxq {command}")
        show(as_json, lambda: document(found), lambda: in_full(name, rows(found)))
        return

    def each(entry: T | Broken) -> dict[str, Any]:
        if isinstance(entry, Broken):
            return {"name": entry.name, "error": entry.error}
        return document(entry)

    show(
        as_json,
        lambda: [each(e) | {"name": n} for n, e in known.items()],
        lambda: listing(
            {n: e if isinstance(e, Broken) else document(e)["summary"] for n, e in known.items()},
            command,
        ),
    )


def listing(known: Mapping[str, str | Broken], command: str) -> RenderableType:
    """One line for each entry: its name and what it is."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, summary in known.items():
        if isinstance(summary, Broken):
            table.add_row(shown(name), shown(f"broken plug-in: {summary.error}", "red"))
        else:
            table.add_row(shown(name), shown(summary))
    return Group(table, shown(f"'onnxq {command} NAME' shows one in full", "dim"))


def in_full(name: str, rows: Rows) -> RenderableType:
    """All about one entry."""
    table = new_table(name, "", "")
    table.show_header = False
    table.columns[0].style = "bold"
    table.columns[0].no_wrap = True
    for word, told in rows:
        lines = [told] if isinstance(told, str) else list(told)
        if any(lines):
            table.add_row(word, shown_lines(lines))
    return table


def pass_document(found: type[Pass]) -> dict[str, Any]:
    """A pass as a JSON object."""
    options = [
        {"name": o.name, "type": o.kind_name, "default": o.default, "required": o.required}
        for o in found.options().values()
    ]
    summary = found.summary()
    return {"name": found.name, "summary": summary, "exact": found.exact, "options": options}


def pass_rows(found: type[Pass]) -> Rows:
    """A pass in full: what it does, its options and its place."""
    _, _, further = (found.__doc__ or "").strip().partition("\n")
    yield "does", [found.summary(), *_paragraphs(further)]
    yield "values", "unchanged" if found.exact else "may change: convert measures the cost"
    yield "options", [_option(o) for o in found.options().values()] or "none"
    yield "reads", found.dialect
    yield "needs", "the canonical form: readers run first" if found.needs_canonical else ""
    yield "comes after", ", ".join(found.after)
    example = "".join(f"{o.name}={_default(o)}" for o in [*found.options().values()][:1])
    braces = f"{{{example}}}" if example else ""
    yield "use", f"onnxq run MODEL -p '{found.name}{braces}' -o NEW.onnx"


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of a docstring, each on one line."""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def _option(option: Option) -> str:
    return f"{option.name}={_default(option)}  ({option.kind_name})"


def _default(option: Option) -> str:
    return "..." if option.required else option.format(option.default)


def backend_rows(found: Backend) -> Rows:
    """A backend in full: its scheme, its files, its proof."""
    yield "is", found.summary
    yield "weights", str(found.scheme.weight)
    yield "activations", str(found.scheme.activation)
    yield "biases", str(found.scheme.bias or "float")
    yield "files", _files(found.outputs) or "none: no writer yet"
    for name, chosen in found.variants.items():
        other = found.variant(name).outputs
        files = _files(other) if other != found.outputs else []
        yield f"--variant {name}", [chosen.summary, *files]
    yield (
        "proof",
        {
            "consumer": "a real consumer runs the files and is compared",
            "format": "files are read back and compared; no consumer ran them",
            None: "training only",
        }[found.proof],
    )
    yield "consumers", found.consumers
    yield "sessions", ", ".join(found.sessions)
    yield "lint rules", [f"{rule.name}: {rule.summary}" for rule in found.lint]
    yield "unlike MQBench", found.mqbench or ()
    yield "pipeline", str(found.pipeline).replace(",", ", ")


def _files(outputs: tuple[Output, ...]) -> list[str]:
    return [f"<stem>{o.suffix}: {o.summary}" for o in outputs]


def format_rows(found: SideFile) -> Rows:
    """A side-file format in full."""
    yield "is", found.summary
    yield "file", f"<stem>{found.suffix}, {'binary' if found.binary else 'text'}"
    yield "contains", "weights and activations" if found.weights else "activations"
    yield "recognised by", found.detection or "nothing in its content"
    yield "versions", ", ".join(found.versions)
    limits = [
        "" if found.readers else "one range per tensor, the same for all of its readers",
        "" if found.narrow else "no ranges narrower than their type, such as -127..127",
        "largest magnitudes only: read back as symmetric grids" if found.magnitudes else "",
    ]
    yield "limits", [limit for limit in limits if limit]
    yield "read with", "--encodings FILE of convert, run and inspect"
    yield "write with", f"onnxq encodings MODEL --format {found.name} -o FOLDER"


__all__ = [
    *("backend_rows", "backends_", "format_rows", "formats_", "in_full", "listing"),
    *("pass_document", "pass_rows", "passes_"),
]
