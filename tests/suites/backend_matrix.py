"""Every backend on every kind of network: converted and proven, or refused with the reason.

    python -m tests.suites.backend_matrix docs/backends.md

writes the page. The networks are those of `tests.models.networks`, quantized as each backend
prefers. What real runtimes gave is read from `docs/consumers.json`, which the tests of consumers
write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnxq
from onnxq.backend import Backend, backends, find_backend
from onnxq.errors import OnnxqError
from tests.models.networks import NETWORKS, quantized, samples

CONSUMERS = Path(__file__).parents[2] / "docs" / "consumers.json"


@dataclass(frozen=True)
class Cell:
    """One backend (or a variant of it) on one network."""

    backend: str
    variant: str
    network: str
    files: tuple[str, ...] = ()
    proven: bool = False
    difference: str = ""
    """The largest difference of what was written, read back."""
    refused: str = ""

    @property
    def target(self) -> str:
        """Backend and variant, as users write them."""
        return f"{self.backend} --variant {self.variant}" if self.variant else self.backend

    @property
    def result(self) -> str:
        """In a few words."""
        if self.refused:
            return "refused"
        return self.difference if self.proven else f"NOT PROVEN ({self.difference})"


def targets() -> list[tuple[str, str]]:
    """All backends that write files, each with its variants ('' for none)."""
    found = []
    for name, backend in sorted(backends().items()):
        if isinstance(backend, Backend) and backend.writes:
            found += [(name, variant) for variant in ("", *backend.variants)]
    return found


def attempt(name: str, variant: str, network: str) -> Cell:
    """Convert one network."""
    backend = find_backend(name)
    model = quantized(network, backend)
    try:
        done = onnxq.convert(
            model, backend, data=samples(network, 2), variant=variant or None, stem="model"
        )
    except OnnxqError as error:
        return Cell(name, variant, network, refused=error.what)
    worst = [p.report.worst for p in done.proofs if p.report.worst is not None]
    largest = max(worst, key=lambda d: d.max, default=None)
    return Cell(
        name,
        variant,
        network,
        files=tuple(f"model{artifact.suffix}" for artifact in done.artifacts),
        proven=done.proven,
        difference="" if largest is None else f"{largest.max:.2g} {largest.unit}",
    )


def document(cells: list[Cell]) -> str:
    """The page of all backends."""
    lines = [
        "# Backends",
        "",
        "What each backend writes, and what came out when five small networks, quantized as the",
        "backend prefers, were converted and read back. This page is made by",
        "`python -m tests.suites.backend_matrix docs/backends.md`; a test keeps it true.",
        "",
        "| target | " + " | ".join(NETWORKS) + " |",
        "|---|" + "---|" * len(NETWORKS),
    ]
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.target, {})[cell.network] = cell
    lines += [
        f"| {target} | " + " | ".join(of[n].result for n in NETWORKS) + " |"
        for target, of in rows.items()
    ]
    lines += [
        "",
        "A number is the largest difference between what was written, read back and run in",
        "onnxruntime's reference session (for `onnxruntime` also in its integer kernels), and the",
        "network it was made from: in quantization steps of the output, or relative where an",
        "output has none.",
    ]
    refused = [c for c in cells if c.refused]
    if refused:
        lines += ["", "## Refused", "", "| target | network | reason |", "|---|---|---|"]
        lines += [f"| {c.target} | {c.network} | {_one_line(c.refused)} |" for c in refused]
    lines += [*_consumers(), *_details(rows)]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.replace("|", "/").split())


def _consumers() -> Iterator[str]:
    if not CONSUMERS.exists():
        return
    found = json.loads(CONSUMERS.read_text(encoding="utf-8"))
    yield from ("", "## Real runtimes", "")
    yield "What the target's own runtime computes from the files (`make test-consumers`), against"
    yield "what was trained. A step is that of the output's quantizer, or 1/127 of its largest"
    yield "value; an element has moved where it differs by half a step or more."
    yield from ("", "| runtime | backend | biases | " + " | ".join(NETWORKS) + " |")
    yield "|---|---|---|" + "---|" * len(NETWORKS)
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in found:
        variant = f" --variant {row['variant']}" if row["variant"] else ""
        key = (f"{row['consumer']} {row['version']}", row["backend"] + variant, row["biases"])
        moved = f", {row['moved']:.2%} moved" if row["moved"] else ""
        steps = f"{row['max_steps']:.2g} steps{moved}"
        rows.setdefault(key, {})[row["network"]] = "refused" if row["refused"] else steps
    for key, of in rows.items():
        yield f"| {' | '.join(key)} | " + " | ".join(of.get(n, "") for n in NETWORKS) + " |"
    yield from ("", *_BIASES)
    for row in found:
        if row["refused"]:
            yield ""
            yield f"{row['consumer']} refuses {row['network']}: `{_one_line(row['refused'])}`"


_BIASES = (
    "Biases: onnxruntime adds them as int32 codes of scale input scale x weight scale, and rounds",
    "float ones to such codes by itself, also those of layers that it runs in float. With `int32`",
    "the network has biases on these steps from the start, as static quantizers write them, and",
    "its kernels are within a step of what was trained. (In the transformer biases are an Add",
    "behind a MatMul: they stay float, and onnxruntime rounds them too.) With `float` the rounding",
    "is part of the difference: a bias moves by up to half a step of the sum, some codes flip, and",
    "later layers add up the flips. No file can prevent that. `--variant int32-bias` does the",
    "rounding in the file and shows what it costs: the model it leaves is what runs, to a step.",
)


def _details(rows: dict[str, dict[str, Cell]]) -> Iterator[str]:
    measured: dict[str, set[str]] = {}
    for row in json.loads(CONSUMERS.read_text(encoding="utf-8")) if CONSUMERS.exists() else ():
        measured.setdefault(row["backend"], set()).add(f"{row['consumer']} {row['version']}")
    for name in dict.fromkeys(cell.backend for of in rows.values() for cell in of.values()):
        backend = find_backend(name)
        yield from ("", f"## {name}", "")
        yield from (f"{backend.summary}. [How to deploy](backends/{name}.md).", "")
        yield f"* weights: {backend.scheme.weight}"
        yield f"* activations: {backend.scheme.activation}"
        bias = "float" if backend.scheme.bias is None else str(backend.scheme.bias)
        yield f"* biases: {bias}"
        yield f"* proven by {', '.join(backend.consumers) or 'reading the files back'}"
        tried = [] if backend.consumers else sorted(measured.get(name, ()))
        if tried:
            yield f"* tried in {', '.join(tried)}: see the table above for how near it comes"
        for variant in ("", *backend.variants):
            chosen = backend.variant(variant) if variant else backend
            about = backend.variants[variant].summary if variant else ""
            yield f"* with `--variant {variant}` ({about}):" if variant else "* files:"
            for output in chosen.outputs:
                yield f"    * `<stem>{output.suffix}`: {output.summary}"
        if backend.mqbench is None:
            yield "* MQBench has no such target"
        else:
            yield "* what MQBench writes for it differs:"
            yield from (f"    * {difference}" for difference in backend.mqbench)


if __name__ == "__main__":
    made = [attempt(name, variant, network) for name, variant in targets() for network in NETWORKS]
    Path(sys.argv[1]).write_text(document(made), encoding="utf-8")
