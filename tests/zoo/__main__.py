"""Try the architectures and write docs/architectures.md: `python -m tests.zoo [NAME ...]`.

Each runs in a process of its own. Exit code 1 if one failed or is not proven.
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
    parser.add_argument("names", nargs="*", metavar="NAME", help="architectures or libraries (all)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each (600)")
    parser.add_argument("--one", nargs=2, metavar=("LIBRARY", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        from tests.zoo import one

        print(json.dumps(one.run(*options.one)))
        return 0
    from tests.zoo.architectures import ARCHITECTURES

    wanted = [(library, name) for library, names in ARCHITECTURES.items() for name in names]
    if options.names:
        wanted = [case for case in wanted if not set(case).isdisjoint(options.names)]
    keys = [f"{library}/{name}" for library, names in ARCHITECTURES.items() for name in names]
    old = page.read()
    rows = {key: old[key] for key in keys if key in old}
    for library, name in wanted:
        row = _child(library, name, options.limit)
        print(json.dumps(row), flush=True)
        rows[f"{library}/{name}"] = row
        page.write({key: rows[key] for key in keys if key in rows})
    ran = [rows[f"{library}/{name}"] for library, name in wanted]
    good = [row for row in ran if row.get("proven")]
    print(f"{len(good)} of {len(ran)} architectures deployed and proven")
    return int(len(good) < len(ran))


def _child(library: str, name: str, limit: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.zoo", "--one", library, name]
    row: dict[str, Any] = {"library": library, "name": name}
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
