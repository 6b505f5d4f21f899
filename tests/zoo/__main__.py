"""Try the architectures and write docs/architectures.md: `python -m tests.zoo [NAME ...]`.

Each runs in a process of its own, and its row is kept as soon as it is done. Exit code 1 if one
failed or is not proven.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from tests.zoo import page


def main() -> int:
    """Run the architectures, tell each result, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="architectures, libraries or backends (all)"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds for each (900)")
    parser.add_argument("--missing", action="store_true", help="only what has no row yet")
    parser.add_argument("--one", nargs=3, metavar="WHAT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        from tests.zoo import one

        print(json.dumps(one.run(*options.one)))
        return 0
    from tests.zoo.architectures import cases

    every = cases()
    wanted = [case for case in every if chosen(case, set(options.names))]
    keys = [page.key(*case) for case in every]
    rows = page.read()
    if options.missing:
        wanted = [case for case in wanted if page.key(*case) not in rows]
    ran = []
    for case in wanted:
        row = _child(case, options.limit)
        print(json.dumps(row), flush=True)
        rows = page.read() | {page.key(*case): row}  # another run may have added its own
        page.write({key: rows[key] for key in keys if key in rows})
        ran.append(row)
    good = [row for row in ran if page.proven(row)]
    print(f"{len(good)} of {len(ran)} deployed and proven")
    return int(len(good) < len(ran))


def chosen(case: tuple[str, str, str], names: set[str]) -> bool:
    """Whether a case fits names of libraries, architectures and backends: any of each kind."""
    from tests.zoo.architectures import OTHER_BACKENDS

    backends = names & {"onnxruntime", *OTHER_BACKENDS}
    others = names - backends
    return (not backends or case[2] in backends) and (not others or not others.isdisjoint(case[:2]))


def _child(case: tuple[str, str, str], limit: float) -> dict[str, Any]:
    library, name, backend = case
    command = [sys.executable, "-m", "tests.zoo", "--one", *case]
    row: dict[str, Any] = {"library": library, "name": name, "backend": backend}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return row | {"failed": f"not done after {limit:.0f} seconds", "seconds": limit}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return row | {"failed": " ".join(done.stderr.split())[-300:]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
