"""One step with one network, in a process of its own: `python -m tests.real.work STEP NAME FOLDER`.

`quantize` calibrates the network and writes the files; `load` loads what was written in a new
process, compares it with the float network, and rates both. Each prints one JSON object.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.calibration.trials.trial import Trial
from onnxq.errors import OnnxqError
from onnxq.running import sessions
from tests.models import real_inputs, real_models
from tests.real import document_tasks, file_tasks, reading_tasks, speech_tasks
from tests.real.task import Feed, Missing, Task

TASKS = {
    **reading_tasks.TASKS,
    **document_tasks.TASKS,
    **speech_tasks.TASKS,
    **file_tasks.TASKS,
}
MOST_KEPT = 64
"""Samples of the calibration to compare sessions with, beside those of the task."""
SEEDS = 8


def task_of(name: str, session: sessions.Session) -> Task:
    """The task of a network; random inputs, and why, if there is none here."""
    try:
        if name in TASKS:
            made = TASKS[name]()
            made.samples(session.run)  # whatever is missing shows here
            return made
        why = "random"
    except Missing as error:
        why = f"random ({error})"
    feeds = [real_inputs.random_feed(name, session.inputs, seed) for seed in range(SEEDS)]
    return Task(why, lambda _: feeds)


def quantize(name: str, folder: Path) -> dict[str, Any]:
    """Quantize the network for onnxruntime and write the files."""
    path = real_models.path_of(name)
    session = sessions.reference(path)
    task = task_of(name, session)
    feeds: list[Feed] = list(task.samples(session.run))
    np.savez(folder / "feeds.npz", **packed([*feeds[:MOST_KEPT], *task.compared]))
    found: dict[str, Any] = {"data": task.data}
    started = time.process_time()
    try:
        made = onnxq.quantize(path, "onnxruntime", feeds, stem="network", measure_latency=True)
    except OnnxqError as error:
        return found | {"refused": str(error).splitlines()[0], "fix": error.fix}
    made.save(folder)
    floats = sum("stays float" in note for note in made.notes)
    if made.latency is None:
        return found | {"failed": f"no latency: {made.notes[-1]}"}
    return found | {
        "seconds": round(time.process_time() - started, 1),
        "proven": made.proven,
        "method": made.recipe.method,
        "quantizers": len(made.range_sources),
        "unseen": floats,
        "latency": round(made.latency, 2),
        "told": any("takes" in note and "the time of the float" in note for note in made.notes),
    }


def load(name: str, folder: Path) -> dict[str, Any]:
    """Load and run what was written: without optimisation, and as users do."""
    path = real_models.path_of(name)
    before = sessions.reference(path)
    task = task_of(name, before)
    feeds = unpacked(folder / "feeds.npz")
    trial = Trial(path, feeds, most=len(feeds))
    shipped = sessions.session(folder / "network_qdq.onnx", "shipped")
    found: dict[str, Any] = {
        "sqnr": _number(trial.noise(folder / "network_qdq.onnx").sqnr),
        "optimised": _number(trial.noise(shipped).sqnr),
    }
    if task.figure is not None:
        values = [task.figure.values(run) for run in (before.run, shipped.run)]
        first, second, kept = task.figure.judge(*values)
        found |= {"what": task.figure.what, "before": first, "after": second, "kept": kept}
    return found


def _number(decibels: float) -> float | str:
    return round(decibels, 1) if math.isfinite(decibels) else str(decibels)


def packed(feeds: list[Feed]) -> dict[str, np.ndarray]:
    return {f"{i}|{key}": value for i, feed in enumerate(feeds) for key, value in feed.items()}


def unpacked(path: Path) -> list[Feed]:
    feeds: dict[int, Feed] = {}
    with np.load(path) as stored:
        for key in stored.files:
            number, _, name = key.partition("|")
            feeds.setdefault(int(number), {})[name] = stored[key]
    return [feeds[i] for i in sorted(feeds)]


def main() -> None:
    """Do the step that the arguments name."""
    step, name, folder = sys.argv[1:]
    try:
        found = {"quantize": quantize, "load": load}[step](name, Path(folder))
    except pytest.skip.Exception as error:
        found = {"skipped": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
