"""Quantizing takes memory for a layer at a time, whatever the size of the network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.quantize_memory import layers
from tests.checks.tables import TableRow

LAYERS, SIDE = 12, 2048

CHILD = """
import sys, threading, time
from pathlib import Path
import numpy as np
import onnxq

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("RssAnon:")) * 1024 / 1e6

def quantize(path, side):
    x = np.random.default_rng(1).standard_normal((1, side), dtype=np.float32)
    found = onnxq.quantize(path, "onnxruntime", [{"x": x}], method="percentile:99.99")
    assert found.proven, found.proofs
    found.save(Path(path).parent / "quantized")
    return found

def watch():
    global most
    while True:
        most = max(most, anonymous())
        time.sleep(0.002)

small, large, side = sys.argv[1:]
quantize(small, 64)  # imports and whatever is kept of the first use
before = most = anonymous()
threading.Thread(target=watch, daemon=True).start()
found = quantize(large, int(side))
assert any("smoothed" in note for note in found.notes), found.notes
print(before, most)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs RssAnon of Linux")
def test_the_peak_is_less_than_half_the_weights(tmp_path: Path, table_row: TableRow) -> None:
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    layers(2, 64, small)
    layers(LAYERS, SIDE, large)
    words = [sys.executable, "-c", CHILD, str(small), str(large), str(SIDE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    before, most = map(float, done.stdout.split())
    weights = LAYERS * SIDE * SIDE * 4 / 1e6
    table_row("memory of quantize in MB", weights=weights, before=before, peak=most)
    assert most - before < weights / 2
