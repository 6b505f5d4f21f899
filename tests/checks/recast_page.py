"""The page docs/recast.md: how many files of other tools can be converted for each backend."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "recast.md"

MADE = ("kept", "recast", "data")
"""Outcomes with files."""

GOAL = 0.97
"""The share of conversions that must give proven files with a measured cost."""

_COLUMNS = (
    *("backend", "files", *MADE, "refused", "not proven", "crash", "exact"),
    *("median SQNR", "worst SQNR"),
)

_HEAD = """\
# Files of other tools, for every backend

`make test-recast` converts {files} files, quantized by other tools in as many ways, for each of
{backends} backends with `allow_requantize=True` and four typical inputs, and writes this page. A
conversion counts if its files are written, every proof passes, and the cost of what had to change
is measured. {made} of {cells} do: {share:.2%}. {refused} are refused, {failed} written without a
proof that passes, {crashed} crash.{unread}

- *kept*: the quantizers of the source, on the nearest grids that the target has
- *recast*: the target's own quantizers, with the ranges of the source
- *data*: the same, but refused without typical inputs, since the source lacks ranges

SQNR is the ratio of the signal to what the conversion changes, in dB at the worst output, over the
conversions that change anything. The *exact* ones change nothing.

"""


@dataclass(frozen=True)
class Cell:
    """One file converted for one backend."""

    name: str
    backend: str
    outcome: str
    """kept: on the grids of the source; recast: on its ranges; data: recast, and some ranges come
    from data, without which it is refused; refused; crash."""
    reason: str = ""
    """Why it was refused, crashed, or is not proven."""
    fix: str = ""
    """The next step that the refusal names."""
    sqnr: float | None = None
    """The cost in dB at the worst output; None if nothing changed or nothing was measured."""
    passed: bool = True
    """Whether all proofs passed, that of the cost among them."""
    seconds: float = 0.0

    @property
    def made(self) -> bool:
        """Whether there are files, and all of them are proven."""
        return self.outcome in MADE and self.passed


class Summary:
    """The counts of a run."""

    def __init__(self, cells: Iterable[Cell], unread: int = 0) -> None:
        """Of these conversions; `unread` further files have no quantization that is read."""
        self.cells = list(cells)
        self.unread = unread

    @property
    def share(self) -> float:
        """The share that gives proven files."""
        return sum(c.made for c in self.cells) / max(len(self.cells), 1)

    @property
    def crashed(self) -> int:
        """The number of crashes."""
        return sum(c.outcome == "crash" for c in self.cells)

    @property
    def reached(self) -> bool:
        """Whether the goal is reached: there are enough files, and no crash."""
        return self.share >= GOAL and not self.crashed

    def text(self) -> str:
        """The counts for the screen."""
        counts = Counter(c.outcome for c in self.cells)
        seconds = sum(c.seconds for c in self.cells)
        lines = [
            f"{len(self.cells)} conversions in {seconds:.0f} s, {self.share:.2%} give proven files "
            f"with a measured cost: {dict(counts)}",
            f"{sum(self._failed(c) for c in self.cells)} without a proof that passed",
            f"{self.unread} files were not read",
        ]
        lines += [f"{count:5} {reason}\n      next: {fix}" for reason, fix, count in self.reasons()]
        return "\n".join(lines)

    def page(self) -> str:
        """The page."""
        names = sorted({c.backend for c in self.cells})
        unread = f" {self.unread} more files have no quantization that can be read." * bool(
            self.unread
        )
        head = _HEAD.format(
            files=len({c.name for c in self.cells}),
            backends=len(names),
            made=sum(c.made for c in self.cells),
            cells=len(self.cells),
            share=self.share,
            refused=self._count(_refused),
            failed=self._count(self._failed),
            crashed=self.crashed,
            unread=unread,
        )
        rows = [_table_row(_COLUMNS), _table_row("---" for _ in _COLUMNS)]
        rows += [self._row(n, [c for c in self.cells if c.backend == n]) for n in names]
        rows.append(self._row("all", self.cells))
        groups = self.reasons()
        if groups:
            rows += ["\n## Not converted\n\n", _table_row(("count", "reason", "next step"))]
            rows.append(_table_row(("---",) * 3))
            rows += [_table_row((count, reason, fix)) for reason, fix, count in groups]
        return head + "".join(rows)

    def reasons(self) -> list[tuple[str, str, int]]:
        """The reasons without names and numbers, the next step of each, and how often."""
        found = Counter(
            (_group(c.reason), _group(c.fix.replace(f"{c.backend}'s", "the target's")))
            for c in self.cells
            if not c.made
        )
        return [(reason, fix, count) for (reason, fix), count in found.most_common()]

    def _count(self, holds: Callable[[Cell], bool]) -> int:
        return sum(map(holds, self.cells))

    @staticmethod
    def _failed(cell: Cell) -> bool:
        return cell.outcome in MADE and not cell.passed

    def _row(self, name: str, cells: list[Cell]) -> str:
        counts = Counter(c.outcome for c in cells if c.made)
        costs = sorted(c.sqnr for c in cells if c.made and c.sqnr is not None and c.sqnr < math.inf)
        shown = [
            name,
            len(cells),
            *(counts[outcome] for outcome in MADE),
            sum(map(_refused, cells)),
            sum(map(self._failed, cells)),
            sum(c.outcome == "crash" for c in cells),
            sum(c.made for c in cells) - len(costs),
            f"{costs[len(costs) // 2]:.1f}" if costs else "",
            f"{costs[0]:.1f}" if costs else "",
        ]
        return _table_row(shown)


def _refused(cell: Cell) -> bool:
    return cell.outcome == "refused"


def _group(text: str) -> str:
    """The text without what differs from file to file: names, numbers, and all but one example."""
    lines = text.partition("; supported: ")[0].split("\n")[:2]
    plain = re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", " ".join(map(str.strip, lines))))
    return re.sub(r"^N (part|quantizer)s? ", r"N \1s ", plain)


def _table_row(cells: Iterable[object]) -> str:
    shown = (str(each).replace("|", "\\|") for each in cells)
    return f"| {' | '.join(shown)} |\n"
