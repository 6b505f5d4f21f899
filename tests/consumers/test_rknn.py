"""The simulator of rknn-toolkit2 on the QDQ files of the rknn backend.

Optional, in an environment of its own, since it needs older packages than onnxq:
`ONNXQ_RKNN_PYTHON` names the interpreter.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.consumers.compare import NETWORKS, Measurement, measure, python, refused, written

Record = Callable[[Measurement], Measurement]

REFUSED = {"transformer": "Invalid w_par['dtype'] = float16 for weight_66.q!"}
"""What the toolkit says of networks that it cannot build."""


def _toolkit() -> tuple[str, str]:
    """The interpreter and the version of the toolkit; skips the test where there is none."""
    interpreter = os.environ.get("ONNXQ_RKNN_PYTHON")
    if not interpreter:
        pytest.skip("rknn-toolkit2 needs an environment of its own: set ONNXQ_RKNN_PYTHON")
    ask = "from importlib.metadata import version; print(version('rknn-toolkit2'))"
    done = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"rknn-toolkit2 is not installed in the environment of {interpreter}")
    return interpreter, done.stdout.strip()


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    interpreter, version = _toolkit()
    run, backend = python("run_rknn.py", interpreter=interpreter), written("rknn")
    if network in REFUSED:
        words = REFUSED[network]
        record(refused("rknn-toolkit2", version, backend, network, run, tmp_path, words))
        return
    found = record(measure("rknn-toolkit2", version, backend, network, run, tmp_path))
    assert found.max_steps <= 4  # its simulator rounds sums in ways of its own
