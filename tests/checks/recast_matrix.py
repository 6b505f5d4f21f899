"""Every file of another tool, converted for every backend with `allow_requantize`.

    python -m tests.checks.recast_matrix [--resume] [--only PART] [--backend NAME] [--no-verify]

counts the conversions that give files which are proven and whose cost is measured, groups the
reasons of the others, and writes docs/recast.md if all files and backends were run. Exit code 1:
too few, or one crashed; an exception that is not onnxq's own is a crash. Each result is added to
build/recast.jsonl as soon as it is there, so that `--resume` goes on where a run was stopped. The
files lie beside the repository (`../shared/fixtures`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.backend import Backend, backends
from onnxq.cli.failures import not_proven
from onnxq.errors import OnnxqError
from onnxq.graph import Model, load
from onnxq.workflows.convert import Conversion, convert
from onnxq.workflows.encodings import read_content
from onnxq.workflows.read_source import read
from tests.checks import recast_page
from tests.checks.recast_page import Cell
from tests.models.foreign_files import FOLDER

RESULTS = Path(__file__).parents[2] / "build" / "recast.jsonl"


def targets() -> list[str]:
    """The backends that write files."""
    found = backends().items()
    return [name for name, each in found if isinstance(each, Backend) and each.writes]


def sources(folder: Path = FOLDER) -> list[Path]:
    """The fixtures with an ONNX file."""
    return sorted(p for p in folder.glob("*/*") if (p / "model.onnx").exists())


def name_of(fixture: Path) -> str:
    """The name of a fixture in results."""
    return f"{fixture.parent.name}/{fixture.name}"


@dataclass(frozen=True)
class Source:
    """A fixture, read once for all its conversions."""

    name: str
    model: Model
    beside: tuple[Path, ...]
    """The side files it is read with."""
    data: list[dict[str, np.ndarray]]
    """Some of the inputs that it was calibrated with."""


def opened(fixture: Path) -> Source | None:
    """The model of a fixture; None if it has no quantization that is read, alone or beside it."""
    model = load(fixture / "model.onnx")
    beside: tuple[Path, ...] = ()
    try:
        read(model)
    except OnnxqError:
        found = next((p for p in sorted(fixture.iterdir()) if _is_side_file(p, model)), None)
        if found is None:
            return None
        beside = (found,)
    return Source(name_of(fixture), model, beside, typical(fixture, model))


def _is_side_file(path: Path, model: Model) -> bool:
    """Whether a file makes a float model readable."""
    if path.suffix in (".onnx", ".npz") or path.name == "meta.json":
        return False
    try:
        read_content(path)
        read(model, encodings=path, allow_missing=True)
    except OnnxqError:
        return False
    return True


def typical(fixture: Path, model: Model, count: int = 4) -> list[dict[str, np.ndarray]]:
    """Some of the inputs that the file was calibrated with."""
    (entry,) = (t for t in model.graph.inputs if not isinstance(t, gs.Constant))
    found = np.load(fixture.parent / "calib.npz")["x"][:count]
    return [{entry.name: x[None].astype(entry.dtype)} for x in found]


def cell(source: Source, backend: str, *, verify: bool = True) -> Cell:
    """One conversion, with typical inputs to measure its cost; and what it gives without them."""
    start = time.perf_counter()
    converted = partial(
        convert,
        source.model,
        backend,
        encodings=source.beside,
        allow_missing=bool(source.beside),
        allow_requantize=True,
    )
    try:
        made = converted(verify=verify, data=source.data)
        needs_data = _takes_ranges(made) and _refused(partial(converted, verify=False))
    except OnnxqError as error:
        return Cell(source.name, backend, "refused", error.what, error.fix, passed=False)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        return Cell(source.name, backend, "crash", what, passed=False)
    costs = [o.sqnr for o in made.cost.outputs] if made.cost else []
    return Cell(
        source.name,
        backend,
        "data" if needs_data else "recast" if made.range_sources else "kept",
        "; ".join(f"{p.what} failed" for p in made.proofs if not p.passed),
        "" if made.proven or not made.proofs else _next_step(made),
        sqnr=min(costs, default=None),
        passed=all(p.passed for p in made.proofs),
        seconds=time.perf_counter() - start,
    )


def _next_step(made: Conversion) -> str:
    """What the command line says about files without a proof."""
    told = not_proven(made, Path("out/unproven"))
    return told.partition("next: ")[2].partition("\n")[0]


def _takes_ranges(made: Conversion) -> bool:
    """Whether any range is from the data."""
    return any(" samples" in text for text in made.range_sources.values())


def _refused(converted: partial[Conversion]) -> bool:
    """Whether a conversion is refused, with the advice to give data."""
    try:
        converted()
    except OnnxqError as error:
        if "--data" not in error.fix:
            raise
        return True
    return False


@dataclass(frozen=True)
class _Work:
    fixture: Path
    backends: tuple[str, ...]
    verify: bool


def _done(work: _Work) -> list[Cell] | None:
    """The conversions of a file; None if it is not read at all."""
    source = opened(work.fixture)
    if source is None:
        return None
    return [cell(source, name, verify=work.verify) for name in work.backends]


def matrix(work: Iterable[_Work], workers: int) -> Iterator[list[Cell] | None]:
    """The conversions of each file."""
    if workers == 1:
        yield from map(_done, work)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_done, work)


def stored(path: Path) -> list[Cell]:
    """The results in a file; a last line that was cut off is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [Cell(**json.loads(line)) for line in lines if line.endswith("\n")]


def main(arguments: list[str] | None = None) -> int:
    """Run the matrix, print its counts and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--resume", action="store_true", help="keep the results that are there")
    parser.add_argument("--no-verify", action="store_true", help="measure nothing, write no page")
    parser.add_argument("--only", default="", help="part of the name of the files")
    parser.add_argument("--backend", action="append", choices=targets())
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    names = given.backend or targets()
    fixtures = [p for p in sources(given.folder) if given.only in name_of(p)]
    found = stored(given.results) if given.resume else []
    given.results.parent.mkdir(parents=True, exist_ok=True)
    unread = 0
    done = {(c.name, c.backend) for c in found}
    work = [
        _Work(fixture, left, not given.no_verify)
        for fixture in fixtures
        if (left := tuple(n for n in names if (name_of(fixture), n) not in done))
    ]
    begun = given.results.with_suffix(".part")
    begun.write_text("".join(map(_line, found)))
    begun.replace(given.results)
    with given.results.open("a") as file:
        for cells in matrix(work, given.workers):
            unread += cells is None
            found += cells or []
            file.writelines(map(_line, cells or ()))
            file.flush()
    summary = recast_page.Summary(found, unread)
    print(summary.text())
    if not (given.no_verify or given.only or given.backend or given.folder != FOLDER):
        recast_page.PAGE.write_text(summary.page(), encoding="utf-8")
    return int(not summary.reached)


def _line(found: Cell) -> str:
    return json.dumps(asdict(found)) + "\n"


if __name__ == "__main__":
    sys.exit(main())
