"""Quantize real networks and write docs/real-networks.md: `python -m tests.real [NAME ...]`.

Exit code 1 if a network failed, is not refused by name, or falls short of the goal.
"""

from __future__ import annotations

import argparse
import sys

from tests.models import real_models
from tests.real import page, runner


def main() -> int:
    """Run the networks, tell each result, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.real", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks (all)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each step (600)")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    numbers = page.read()
    names = options.names or real_models.all_names()
    unknown = sorted(set(names) - set(real_models.all_names()))
    if unknown:
        parser.error(f"no network {unknown[0]}; there are {', '.join(real_models.all_names())}")
    for name in () if options.page else names:
        found = runner.run(name, options.limit)
        print(name, found, flush=True)
        if page.outcome(found) != "skipped" or name not in numbers:
            numbers[name] = found
        page.write(numbers)
    if options.page:
        page.write(numbers)
    ran = {n: f for n, f in numbers.items() if n in names and page.outcome(f) != "skipped"}
    done = {n: f for n, f in ran.items() if page.outcome(f) == "done"}
    failed = [n for n, f in ran.items() if page.outcome(f) == "failed"]
    short = [
        f"{n}: {m}" for n, f in ran.items() if page.outcome(f) == "done" for m in page.misses(f)
    ]
    print(
        f"{len(done)} of {len(ran)} networks quantized, loaded and run", *failed, *short, sep="\n"
    )
    return int(bool(failed or short or len(done) < page.SHARE * len(ran)))


if __name__ == "__main__":
    sys.exit(main())
