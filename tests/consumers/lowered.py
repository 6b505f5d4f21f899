"""A consumer's process; where a signal ends it, once more with fewer instructions.

Some virtual machines advertise instructions that they do not enable (AMX, most of all). oneDNN,
inside OpenVINO and torch, believes them and dies by SIGILL. That says nothing about the files it
was given, so the process is started again with `ONEDNN_MAX_CPU_ISA` set to ever older sets, and
what it took is told with the result. Any other failure counts: an exception, a wrong number, or a
signal at every level.
"""

from __future__ import annotations

import os
import signal
import subprocess

VARIABLE = "ONEDNN_MAX_CPU_ISA"

LEVELS = ("AVX512_CORE_BF16", "AVX2")
"""The newest set without AMX, and what every CPU has that runs OpenVINO's int8 kernels."""


class ConsumerFailed(AssertionError):
    """The consumer's process ended with an error."""


def run_lowered(command: list[str]) -> str:
    """Run `command`; returns the level it needed, '' where it ran as it is."""
    plain = os.environ | {"OMP_NUM_THREADS": "1"}
    told = []
    for level in ("", *_below(plain.get(VARIABLE, ""))):
        environment = plain | ({VARIABLE: level} if level else {})
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if not done.returncode:
            return level
        told.append(f"{level or 'as it is'}: {_ending(done)}")
        if done.returncode > 0:
            break
    raise ConsumerFailed("\n".join(told)[-4000:])


def _below(level: str) -> tuple[str, ...]:
    """The levels left to try where the caller has set one."""
    return LEVELS[LEVELS.index(level) + 1 :] if level in LEVELS else LEVELS


def _ending(done: subprocess.CompletedProcess[str]) -> str:
    code = done.returncode
    how = f"exit {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    return f"{how}\n{done.stdout}\n{done.stderr}"
