"""docs/architectures.md, and the numbers it is written from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = _DOCS / "architectures.json"
PAGE = _DOCS / "architectures.md"

EXPORTERS = ("torchscript", "dynamo")
FIRST = "onnxruntime"
Row = Mapping[str, Any]

_HEAD = """# Architectures

`make test-zoo` takes each of these architectures with random weights, prepares it with
`torch_bridge.prepare(model, "onnxruntime", inputs)` and no other option, calibrates, trains three
steps, and deploys with both of torch's exporters. The tables are written by it.

- capture: how the model became a graph: `fx` (torch.fx), `export` (torch.export, where FX cannot
  trace the code), or `modules` (no graph, layer by layer).
- layers: layers with weights and matrix products of activations that are quantized, of those that
  the target has on codes, as the report of `prepare` counts them.
- torchscript, dynamo: Conv, ConvTranspose, Gemm, MatMul and Einsum nodes of the exported file that
  multiply codes with codes, of all such nodes (for targets that multiply two activations in float,
  of those with a weight); and "proven" if torch, the canonical file and the
  target's file computed the same. "(torch)" is a difference between torch and the canonical file,
  "(deployed)" one between onnxruntime's reference and optimised sessions of the target's file.

Rows may come from different runs and versions: `ARCHITECTURES="..."` tries some again and keeps the
rows of the others. Seconds are of a busy machine.

"""
_OTHERS = """
## Other backends

The same for a part of the architectures. A cell counts the products on codes in the exported file,
torchscript's and dynamo's if they differ, and says "proven" if both files are.

"""


def key(library: str, name: str, backend: str) -> str:
    """The key of a row."""
    return f"{library}/{name}" if backend == FIRST else f"{library}/{name} for {backend}"


def read() -> dict[str, dict[str, Any]]:
    """The rows of earlier runs, by library, name and backend."""
    if not NUMBERS.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(NUMBERS.read_text())
    return found


def write(rows: dict[str, dict[str, Any]]) -> None:
    """Write the numbers and the page."""
    NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    PAGE.write_text(text(rows))


def proven(row: Row) -> bool:
    """Whether the files of both exporters are proven."""
    files = row.get("exporters", {})
    return len(files) == len(EXPORTERS) and all(file.get("proven") for file in files.values())


def text(rows: Mapping[str, Row]) -> str:
    """The page."""
    first = [row for row in rows.values() if row["backend"] == FIRST]
    others = [row for row in rows.values() if row["backend"] != FIRST]
    lines = [
        *_summary("onnxruntime", first),
        "",
        "| library | architecture | capture | layers | torchscript | dynamo | seconds | remarks |",
        "|---|---|---|---|---|---|---|---|",
        *map(_line, first),
    ]
    made = _HEAD + "\n".join(lines) + "\n"
    return made + _OTHERS + "\n".join(_others(others)) + "\n" if others else made


def _summary(backend: str, rows: list[Row]) -> list[str]:
    lines = []
    for exporter in EXPORTERS:
        files = [row["exporters"][exporter] for row in rows if exporter in row.get("exporters", {})]
        failed = sum("failed" in row for row in rows) + sum("failed" in file for file in files)
        done = sum(bool(file.get("proven")) for file in files)
        lines.append(
            f"- {backend}, {exporter}: {done} of {len(files)} architectures are deployed and "
            f"proven, {failed} failed; {_share(files)} of all products are on codes."
        )
    return lines


def _share(files: Iterable[Row]) -> str:
    counted = [file for file in files if file.get("products")]
    every = sum(file["products"] for file in counted)
    on_codes = sum(file["quantized"] for file in counted)
    return f"{on_codes / every:.1%}" if every else "none"


def _line(row: Row) -> str:
    layers = f"{row['quantized']} of {row['products']}" if "products" in row else ""
    files = row.get("exporters", {})
    remarks = [
        *([row["failed"]] if "failed" in row else []),
        *(f"{exporter}: {told}" for exporter, file in files.items() for told in _faults(file)),
        *(f"float: {reason}" for reason in row.get("float", ())),
        *row.get("cautions", ()),
    ]
    shown = "; ".join(remarks).replace("|", "\\|")[:400]
    cells = (
        row["library"], row["name"], row.get("capture", ""), layers,
        *(_file(row, files.get(exporter)) for exporter in EXPORTERS),
        str(row.get("seconds", "")), shown,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _faults(file: Row) -> list[str]:
    return [file["failed"]] if "failed" in file else list(file.get("unproven", ()))


def _file(row: Row, file: Row | None) -> str:
    if file is None:
        return "failed" if "failed" in row else ""
    if "failed" in file:
        return "failed"
    counts = f"{file['quantized']} of {file['products']}, " if "products" in file else ""
    return f"{counts}{'proven' if file['proven'] else 'not proven'}"


def _others(rows: list[Row]) -> list[str]:
    """A line for each architecture, a column for each backend."""
    backends = list(dict.fromkeys(row["backend"] for row in rows))
    names = dict.fromkeys(row["name"] for row in rows)
    by_place = {(row["name"], row["backend"]): row for row in rows}
    lines = [line for b in backends for line in _summary(b, [r for r in rows if r["backend"] == b])]
    lines += ["", f"| architecture | {' | '.join(backends)} |", "|---" * (len(backends) + 1) + "|"]
    for name in names:
        cells = (_cell(by_place.get((name, backend))) for backend in backends)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    remarks = [
        f"- {row['name']} for {row['backend']}: {told}"
        for row in rows
        for told in [
            *([row["failed"]] if "failed" in row else []),
            *(f"{e}: {t}" for e, f in row.get("exporters", {}).items() for t in _faults(f)),
        ]
    ]
    return [*lines, *(["", *remarks] if remarks else [])]


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return " / ".join(
        dict.fromkeys(_file(row, row.get("exporters", {}).get(exporter)) for exporter in EXPORTERS)
    )
