"""Every file of another tool, converted for every backend with `allow_requantize`.

    python -m tests.checks.recast_matrix [--no-verify] [--only PART] [--json FILE]

counts the conversions that give files, and lists why others were refused. An exception that is not
onnxq's own is a crash. The files lie beside the repository (`../shared/fixtures`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.backend import Backend, backends
from onnxq.errors import OnnxqError
from onnxq.graph import load
from onnxq.workflows.convert import convert
from onnxq.workflows.encodings import read_content
from onnxq.workflows.read_source import read
from tests.models.foreign_files import FOLDER

MADE = ("kept", "recast", "data")
"""Outcomes with files."""

_LACKING = re.compile("cannot be written for ncnn")

GOAL = 0.97
"""The share of conversions that must give files with a measured cost."""


@dataclass(frozen=True)
class Cell:
    """One file converted for one backend."""

    name: str
    backend: str
    outcome: str
    """kept: on the grids of the source; recast: on its ranges; data: recast, and some ranges come
    from data, without which it is refused; lacking: the target has not all operators; refused;
    crash."""
    reason: str = ""
    sqnr: float | None = None
    """The cost in dB at the worst output; None if nothing changed or nothing was measured."""
    passed: bool = True
    """Whether all proofs passed, that of the cost among them."""
    seconds: float = 0.0


def targets() -> list[str]:
    """The backends that write files."""
    found = backends().items()
    return [name for name, each in found if isinstance(each, Backend) and each.writes]


def sources(folder: Path = FOLDER) -> list[Path]:
    """The fixtures with an ONNX file."""
    return sorted(p for p in folder.glob("*/*") if (p / "model.onnx").exists())


def side_file_of(fixture: Path) -> Path | None:
    """The side file that makes a float model readable, if one does."""
    model = load(fixture / "model.onnx")
    for path in sorted(fixture.iterdir()):
        if path.suffix in (".onnx", ".npz") or path.name == "meta.json":
            continue
        try:
            read_content(path)
            read(model, encodings=path, allow_missing=True)
        except OnnxqError:
            continue
        return path
    return None


def readable(fixture: Path) -> list[Path] | None:
    """The side files a fixture is read with; None if it is not read at all."""
    try:
        read(load(fixture / "model.onnx"))
    except OnnxqError:
        beside = side_file_of(fixture)
        return None if beside is None else [beside]
    return []


def cells_of(fixture: Path, names: list[str], *, verify: bool = True) -> list[Cell]:
    """One file converted for the backends `names`; none if the file is not read at all."""
    beside = readable(fixture)
    if beside is None:
        return []
    return [cell(fixture, name, beside, verify=verify) for name in names]


def cell(fixture: Path, backend: str, beside: list[Path], *, verify: bool = True) -> Cell:
    """One conversion; with `verify` once more, with typical inputs to measure its cost."""
    name = f"{fixture.parent.name}/{fixture.name}"
    start = time.perf_counter()
    data: list[dict[str, np.ndarray]] | None = None
    given = ""
    while True:
        try:
            made = convert(
                fixture / "model.onnx",
                backend,
                encodings=beside,
                allow_missing=True,
                allow_requantize=True,
                verify=verify and data is not None,
                data=data,
            )
        except OnnxqError as error:
            if "--data" in error.fix and data is None:
                data, given = typical(fixture), "data"
                continue
            outcome = "lacking" if _LACKING.search(error.what) else "refused"
            return Cell(name, backend, outcome, error.what, passed=False)
        except Exception as error:
            return Cell(name, backend, "crash", f"{type(error).__name__}: {error}", passed=False)
        if not verify or data is not None:
            break
        data = typical(fixture)
    costs = [o.sqnr for o in made.cost.outputs] if made.cost else []
    return Cell(
        name,
        backend,
        given or ("recast" if made.range_sources else "kept"),
        "; ".join(f"{p.what} failed" for p in made.proofs if not p.passed),
        min(costs, default=None),
        all(p.passed for p in made.proofs),
        time.perf_counter() - start,
    )


def typical(fixture: Path, count: int = 4) -> list[dict[str, np.ndarray]]:
    """Some of the inputs that the file was calibrated with."""
    inputs = load(fixture / "model.onnx").graph.inputs
    (entry,) = (t for t in inputs if not isinstance(t, gs.Constant))
    found = np.load(fixture.parent / "calib.npz")["x"][:count]
    return [{entry.name: x[None].astype(entry.dtype)} for x in found]


def _one(work: tuple[Path, list[str], bool]) -> list[Cell]:
    fixture, names, verify = work
    return cells_of(fixture, names, verify=verify)


def matrix(fixtures: list[Path], names: list[str], *, verify: bool, workers: int) -> Iterator[Cell]:
    """All conversions."""
    work = [(fixture, names, verify) for fixture in fixtures]
    if workers == 1:
        for each in work:
            yield from _one(each)
        return
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(_one, work):
            yield from found


def share(cells: list[Cell]) -> float:
    """The share that gave files, of those whose target has the operators."""
    able = [c for c in cells if c.outcome != "lacking"]
    return sum(c.outcome in MADE for c in able) / max(len(able), 1)


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--only", default="", help="part of the name of the files")
    parser.add_argument("--backend", action="append")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    fixtures = [p for p in sources(given.folder) if given.only in f"{p.parent.name}/{p.name}"]
    found: list[Cell] = []
    for each in matrix(
        fixtures,
        given.backend or targets(),
        verify=not given.no_verify,
        workers=given.workers,
    ):
        found.append(each)
        if given.json:
            with given.json.open("a") as file:
                file.write(json.dumps(asdict(each)) + "\n")
    counts = Counter(c.outcome for c in found)
    made = sum(counts[each] for each in MADE)
    print(
        f"{len(found)} conversions: {100 * made / max(len(found), 1):.1f} % give files, "
        f"{100 * share(found):.1f} % if the target has the operators: {dict(counts)}"
    )
    print(f"{sum(not c.passed for c in found)} without a proof that passed")
    for reason, count in Counter(c.reason[:160] for c in found if c.reason).most_common(25):
        print(f"{count:5} {reason}")
    return int(share(found) < GOAL or counts["crash"] > 0)


if __name__ == "__main__":
    sys.exit(main())
