"""docs/architectures.md, and the numbers it is written from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_DOCS = Path(__file__).parents[2] / "docs"
NUMBERS = _DOCS / "architectures.json"
PAGE = _DOCS / "architectures.md"

_HEAD = """# Architectures

`make test-zoo` takes each of these architectures with random weights, prepares it with
`torch_bridge.prepare(model, "onnxruntime", inputs)` and no other option, calibrates, trains three
steps, and deploys. The table is written by it.

- capture: how the model became a graph: `fx` (torch.fx), `export` (torch.export, where FX cannot
  trace the code), or `modules` (no graph, layer by layer).
- products: layers with weights and matrix products of activations that are quantized, of those that
  the target has on codes.
- proven: torch, the canonical file and the target's file computed the same. "(torch)" is a
  difference between torch and the canonical file; "(deployed)" one between onnxruntime's reference
  and optimised sessions of the target's file, of more than 10 %.

Rows may come from different runs and versions: `ARCHITECTURES="..."` tries some again and keeps the
rows of the others. Seconds are of a busy machine.

"""


def read() -> dict[str, dict[str, Any]]:
    """The rows of earlier runs, by library and name."""
    if not NUMBERS.exists():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(NUMBERS.read_text())
    return found


def write(rows: dict[str, dict[str, Any]]) -> None:
    """Write the numbers and the page."""
    NUMBERS.write_text(json.dumps(rows, indent=1) + "\n")
    PAGE.write_text(text(rows))


def text(rows: dict[str, dict[str, Any]]) -> str:
    """The page."""
    done = sum(bool(row.get("proven")) for row in rows.values())
    lines = [
        f"{done} of {len(rows)} architectures are deployed and proven.",
        "",
        "| library | architecture | capture | products | proven | seconds | remarks |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += map(_line, rows.values())
    return _HEAD + "\n".join(lines) + "\n"


def _line(row: dict[str, Any]) -> str:
    products = f"{row['quantized']} of {row['products']}" if "products" in row else ""
    proven = "failed" if "failed" in row else "yes" if row.get("proven") else "no"
    remarks = [
        *([row["failed"]] if "failed" in row else []),
        *row.get("unproven", ()),
        *(["exporter='dynamo'"] if row.get("exporter") == "dynamo" else []),
        *(f"float: {reason}" for reason in row.get("float", ())),
        *row.get("cautions", ()),
    ]
    shown = "; ".join(remarks).replace("|", "\\|")[:300]
    cells = (
        row["library"], row["name"], row.get("capture", ""), products, proven,
        str(row.get("seconds", "")), shown,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"
