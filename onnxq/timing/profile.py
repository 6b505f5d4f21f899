"""onnxruntime's profile of a session, read strictly.

The file is a list of events. Those of category "Session" named "model_run" are the runs; those of
category "Node" whose name ends in "_kernel_time" are kernels, with the name of the node before it
and the operator and the types of the tensors among the arguments. Times are whole microseconds.

A kernel that runs others (If, Loop, Scan) has an event for itself and one for each of them, so its
own is left out: every microsecond is counted once. The first run allocates and is left out, too.
The time of a kernel is the median over the other runs: the system may interrupt any of them.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onnxq.parsing.strict_json import Entry, parse

_FIX = "measure without the profile, or report the file: this onnxruntime writes it otherwise"
_KERNEL = "_kernel_time"
_HOLDERS = ("If", "Loop", "Scan", "SequenceMap")


@dataclass
class KernelTime:
    """One node of the session's graph."""

    name: str
    op: str
    inputs: tuple[str, ...]
    """The types of the tensors it reads, as onnxruntime writes them: 'float', 'uint8' ..."""
    outputs: tuple[str, ...]
    microseconds: float
    """Time of one run."""


def read_profile(text: str) -> list[KernelTime]:
    """The kernels of a profile in the order in which they ran first."""
    events = parse(text, "a profile of onnxruntime", _FIX)
    entries = [
        Entry.of(event, f"event {number} of the profile", _FIX)
        for number, event in enumerate(events if isinstance(events, list) else [events])
    ]
    ends = sorted(entry.integer("ts") + entry.integer("dur") for entry in _runs(entries))
    found: dict[str, KernelTime] = {}
    times: dict[str, list[int]] = {}
    for entry in entries:
        name = str(entry.value.get("name", ""))
        if entry.value.get("cat") != "Node" or not name.endswith(_KERNEL):
            continue
        entry.only(("args", "cat", "dur", "name", "ts"), ("pid", "tid", "ph"))
        made = _kernel(entry, name.removesuffix(_KERNEL))
        if made.op in _HOLDERS:
            continue
        run = bisect.bisect_right(ends, entry.integer("ts"))
        if run >= len(ends):
            raise entry.error("a kernel ran outside of all runs")
        found.setdefault(made.name, made)
        times.setdefault(made.name, [0] * len(ends))[run] += entry.integer("dur")
    for kernel in found.values():
        measured = times[kernel.name]
        kernel.microseconds = statistics.median(measured[1:] or measured)
    return list(found.values())


def _runs(entries: list[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if entry.value.get("cat") == "Session" and entry.value.get("name") == "model_run":
            entry.only(("cat", "dur", "name", "ts"), ("args", "pid", "tid", "ph"))
            yield entry


def _kernel(entry: Entry, name: str) -> KernelTime:
    args = Entry.of(entry.value["args"], f"{entry.where}: 'args'", entry.fix)
    for key in ("op_name", "input_type_shape", "output_type_shape"):
        if key not in args.value:
            raise args.error(f"key '{key}' is missing")
    return KernelTime(
        name,
        args.text("op_name"),
        _types(args, "input_type_shape"),
        _types(args, "output_type_shape"),
        0.0,
    )


def _types(args: Entry, key: str) -> tuple[str, ...]:
    """The types in a list such as [{"float": [1, 8]}, {"uint8": []}]."""
    listed: Any = args.value[key]
    if not isinstance(listed, list) or not all(isinstance(v, dict) for v in listed):
        raise args.error(f"'{key}' is not a list of objects")
    return tuple(next(iter(value), "") for value in listed)
