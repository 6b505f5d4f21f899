"""Attacks in processes of their own, so that a crash, a hang or a lack of memory is a finding."""

from __future__ import annotations

import importlib
import multiprocessing
import resource
import shutil
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from tests.fuzz.outcome import Outcome

KINDS = {"models": "tests.fuzz.models", "side-files": "tests.fuzz.side_files"}
"""The modules whose `attack(seed, folder)` is run, by name."""

SECONDS = 20.0
"""After that an attack hangs."""
MEMORY = 2 << 30
"""What an attack may take beyond what a process has at its start, in bytes."""
FINDING = "finding"

Case = tuple[str, int]


@dataclass(frozen=True)
class Verdict:
    """How one attack ended."""

    kind: str
    outcome: str
    """One of Outcome's values, or 'finding'."""
    finding: str = ""
    """What went wrong."""


def run(
    cases: Iterable[Case],
    show: Callable[[Verdict], None],
    *,
    keep: Path | None = None,
    processes: int = 2,
) -> None:
    """Run all `cases`; `show` sees each verdict, in no order."""
    waiting: SimpleQueue[Case | None] = SimpleQueue()
    for case in cases:
        waiting.put(case)
    lock = threading.Lock()

    def work() -> None:
        worker = _Worker()
        while (case := waiting.get()) is not None:
            verdict = worker.judge(case, keep)
            with lock:
                show(verdict)
        worker.stop()

    threads = [threading.Thread(target=work) for _ in range(processes)]
    for thread in threads:
        waiting.put(None)
        thread.start()
    for thread in threads:
        thread.join()


class _Worker:
    """A process that takes one case after another; a new one where it died or was stopped."""

    def __init__(self) -> None:
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def judge(self, case: Case, keep: Path | None) -> Verdict:
        kind, seed = case
        with tempfile.TemporaryDirectory(prefix="onnxq-fuzz-") as folder:
            outcome, what = self._ask((kind, seed, folder))
            if what and keep is not None:
                shutil.copytree(folder, keep / f"{kind}-{seed}", dirs_exist_ok=True)
        return Verdict(kind, outcome, what)

    def _ask(self, case: tuple[str, int, str]) -> tuple[str, str]:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, KINDS), daemon=True)
            self._process.start()
            theirs.close()
            self._pipe.recv()  # imports take their time
        assert self._pipe is not None
        try:
            self._pipe.send(case)
            if self._pipe.poll(SECONDS):
                outcome, what = self._pipe.recv()
                return str(outcome), str(what)
            what = f"no end after {SECONDS:g} s"
        except (EOFError, OSError):
            self._process.join()
            what = f"the process died (exit code {self._process.exitcode})"
        self.stop()
        return FINDING, f"seed {case[1]}: {what}"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


def _serve(pipe: Connection, kinds: dict[str, str]) -> None:
    """The process: judge what comes until the other end is closed."""
    warnings.simplefilter("error")  # what numpy warns of reaches users on their screens
    attacks = {kind: importlib.import_module(module).attack for kind, module in kinds.items()}
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    pipe.send("ready")
    while True:
        try:
            kind, seed, folder = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((Outcome(attacks[kind](seed, Path(folder))), ""))
        except Exception as error:
            where = "".join(traceback.format_exception(error.__cause__ or error, limit=-4))
            pipe.send((FINDING, f"{error}\n{where}"))
