"""Any number of attacks: `python -m tests.fuzz --count 5000 --seed 0 --only models`.

Exit code 1 where there is a finding. A seed gives the same attack whenever the same sound models
are there, so `--count 1 --seed S --keep DIR` shows one again and leaves its files in DIR.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fuzz.campaign import KINDS, Verdict, run


def main() -> int:
    """Parse the arguments, run the attacks, show the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="attacks of each kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--only", choices=sorted(KINDS), help="one kind only")
    parser.add_argument("--keep", type=Path, help="folder for the files of findings")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    console, counts = Console(), dict[str, Counter[str]]()
    kinds = [given.only] if given.only else sorted(KINDS)
    seeds = range(given.seed, given.seed + given.count)

    def show(verdict: Verdict) -> None:
        counts.setdefault(verdict.kind, Counter())[verdict.outcome] += 1
        if verdict.finding:
            console.print(f"{verdict.kind} {verdict.finding}", markup=False, soft_wrap=True)

    cases = [(kind, seed) for kind in kinds for seed in seeds]
    run(cases, show, keep=given.keep, processes=given.processes)
    table = Table("attacks", "refused", "equal", "findings")
    for kind, found in counts.items():
        table.add_row(kind, *(str(found[o]) for o in ("refused", "equal", "finding")))
    console.print(table)
    return 1 if any(found["finding"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
