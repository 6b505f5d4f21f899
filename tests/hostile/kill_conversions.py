"""Conversions into a folder with an older set of files, killed at random moments.

    python -m tests.hostile.kill_conversions --count 200

Half of the kills fall anywhere in the run, a quarter while files are being saved, a quarter in the
short time in which they are moved into place. Whatever is left must be the old set, the new set, or
a mixture that the next command names and completes. Each move waits for a moment first: otherwise
all of them are over in less time than a signal takes.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from onnxq import cli, discovery
from onnxq.backend import backends
from onnxq.disk import file_set
from onnxq.disk.file_set import FileSet
from onnxq.graph import save
from onnxq.workflows import demo
from onnxq.workflows.artifacts import MadeFiles
from tests.models.stored_models import listing

Set = dict[str, bytes]
OUTCOMES = ("old set", "new set", "mixture, completed", "damaged")


PHASES: dict[str, tuple[Any, str]] = {
    "while saving": (MadeFiles, "save"),
    "while moving": (FileSet, "_move_all"),
}
TIMES = ("any time", "while saving", "any time", "while moving")


def telling(pipe: int, true: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method that says when it begins and when it is done."""

    def call(*arguments: Any) -> Any:
        os.write(pipe, name[1].encode())
        result = true(*arguments)
        os.write(pipe, name[1].encode())
        return result

    return call


def slow(true: Callable[..., None]) -> Callable[..., None]:
    """A function that begins 5 ms late."""

    def call(*arguments: Any) -> None:
        time.sleep(0.005)
        true(*arguments)

    return call


class Process:
    """A command in a process of its own, which tells when it begins to save and to move files."""

    def __init__(self, work: Callable[[], object]) -> None:
        assert "onnxruntime" not in sys.modules, "its threads do not survive a fork"
        self.begun = time.monotonic()
        told, tell = os.pipe()
        errors, write_errors = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            sys.stderr = os.fdopen(write_errors, "w")
            for place, method in PHASES.values():
                setattr(place, method, telling(tell, getattr(place, method), method))
            file_set.put = slow(file_set.put)
            code = 0
            try:
                work()
            except SystemExit as ended:
                code = int(ended.code or 0)
            sys.stderr.flush()
            os._exit(code)
        os.close(tell)
        os.close(write_errors)
        self.told, self.errors = told, errors

    def wait_for(self, phase: str) -> float:
        """The time when a phase begins or ends; now, if the process ends without a word."""
        while os.read(self.told, 1) not in (b"", PHASES[phase][1][1].encode()):
            pass
        return time.monotonic()

    def run_for(self, seconds: float) -> None:
        """Return after some time, or when the process has ended."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.told], [], [], left)[0] and not os.read(self.told, 1):
                break

    def end(self) -> tuple[int, str]:
        """The exit code (negative: the signal) and what went to standard error."""
        text = b""
        while piece := os.read(self.errors, 1 << 16):
            text += piece
        _, status = os.waitpid(self.pid, 0)
        os.close(self.told)
        os.close(self.errors)
        return os.waitstatus_to_exitcode(status), " ".join(text.decode().split())

    def kill(self) -> bool:
        """End the process; says whether it was still at work."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()[0] == -signal.SIGKILL


def command(*words: object) -> Process:
    return Process(lambda: cli.main([str(word) for word in words]))


def convert(model: Path, folder: Path) -> Process:
    return command("convert", model, "-b", "tensorrt", "-o", folder, "--no-verify")


def finish(process: Process) -> str:
    code, text = process.end()
    if code:
        raise AssertionError(f"exit code {code}: {text}")
    return text


def make(path: Path, seed: int) -> None:
    save(demo.quantize(demo.build(seed=seed)), path, external_data=True)


def prepare(root: Path) -> tuple[Path, Path, Set, Set]:
    """The model to convert, a folder with the files of another one, both sets of files."""
    for name, seed in (("old", 0), ("new", 1)):
        finish(Process(partial(make, root / name / "net.onnx", seed)))
        finish(convert(root / name / "net.onnx", root / f"{name}-out"))
    old, new = listing(root / "old-out"), listing(root / "new-out")
    assert old.keys() == new.keys()
    assert len(old) > 3
    assert all(old[name] != new[name] for name in old if not name.endswith(".cache"))
    return root / "new" / "net.onnx", root / "old-out", old, new


def durations(model: Path, folder: Path) -> dict[str, float]:
    """How long a conversion takes, and its phases."""
    taken = {}
    for phase in PHASES:
        process = convert(model, folder)
        taken[phase] = -process.wait_for(phase)
        taken[phase] += process.wait_for(phase)
        finish(process)
        taken["any time"] = time.monotonic() - process.begun
    return taken


def judge(folder: Path, old: Set, new: Set, next_command: Callable[[Path], str]) -> str:
    """What is in `folder`, and what the next command makes of it."""
    found = {n: data for n, data in listing(folder).items() if not n.startswith(".onnxq-")}
    if found.keys() != old.keys() or any(found[n] not in (old[n], new[n]) for n in found):
        return "damaged"
    told = next_command(folder)
    after = listing(folder)
    if found in (old, new):
        # A journal behind an old set is carried out as well: complete files are no waste.
        return ("old set" if found == old else "new set") if after in (old, new) else "damaged"
    late = [name for name in old if found[name] != new[name]]
    named = all(name in told for name in late)
    return "mixture, completed" if named and after == new else "damaged"


def inspect(folder: Path) -> str:
    return finish(command("inspect", folder / "net_qdq.onnx"))


def kill_many(root: Path, count: int, seed: int) -> Counter[tuple[str, str]]:
    """How often each outcome was seen, by when the process was killed."""
    backends(), discovery.passes()  # imported once, not in every process
    rng = random.Random(seed)
    model, before, old, new = prepare(root)
    folder = root / "folder"
    shutil.copytree(before, folder)
    taken = durations(model, folder)
    outcomes: Counter[tuple[str, str]] = Counter()
    while outcomes.total() < count:
        shutil.rmtree(folder)
        shutil.copytree(before, folder, copy_function=shutil.copy2)
        process = convert(model, folder)
        when = TIMES[outcomes.total() % len(TIMES)]
        if when in PHASES:
            process.wait_for(when)
        process.run_for(rng.random() * taken[when])
        if process.kill():  # else it was done before
            outcomes[when, judge(folder, old, new, inspect)] += 1
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="number of kills")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onnxq-kills-") as name:
        outcomes = kill_many(Path(name), chosen.count, chosen.seed)
    print(f"{'killed':14}{'kills':>7}" + "".join(f"{o:>20}" for o in OUTCOMES))
    for when in dict.fromkeys(TIMES):
        row = [outcomes[when, outcome] for outcome in OUTCOMES]
        print(f"{when:14}{sum(row):7}" + "".join(f"{n:20}" for n in row))
    return sum(n for (_, outcome), n in outcomes.items() if outcome == "damaged")


if __name__ == "__main__":
    sys.exit(main())
