"""What is registered or plugged in inside a block is forgotten after it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onnxq import discovery
from onnxq.operators import placement
from torch_bridge.fake_quant import ALGORITHMS
from torch_bridge.insertion import op_kinds
from torch_bridge.insertion.patterns import PATTERNS
from torch_bridge.observers import OBSERVERS


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Restore every registry, and look for packages again before and after."""
    tables = (op_kinds.MODULES, op_kinds.FUNCTIONS, op_kinds.METHODS, placement._ADDED)
    kept = [(table, table.copy()) for table in tables]
    patterns = dict(vars(PATTERNS))
    patterns["_by_backend"] = {name: dict(place) for name, place in PATTERNS._by_backend.items()}
    classes = [(r, dict(r._registered), set(r._replaced)) for r in (ALGORITHMS, OBSERVERS)]
    look_again()
    try:
        yield
    finally:
        for table, before in kept:
            table.clear()
            table.update(before)
        vars(PATTERNS).update(patterns)
        for registry, registered, replaced in classes:
            registry._registered, registry._replaced = registered, replaced
        look_again()


def look_again() -> None:
    """Forget which packages were found."""
    discovery.discover.cache_clear()
    ALGORITHMS.look_again()
    OBSERVERS.look_again()
    PATTERNS.look_again()
