"""One way to quantize a network, in a process of its own, which does not import torch.

`python -m benchmarks.quantize_child WAY MODEL MADE SAMPLES [DB]` prints its costs as one line of
JSON. The ways are quantize_static of onnxruntime ("theirs"), onnxq with plain extremes, onnxq as
users run it, and with layers in float for an SQNR of DB.
"""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import peak_megabytes

Feed = dict[str, np.ndarray]
ROOT = Path(__file__).parents[1]


def theirs(model: Path, made: Path, feeds: list[Feed]) -> None:
    """What onnxruntime's users are told to do: pre-process, QDQ, per channel, u8 and s8."""
    import logging

    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.feeds = iter(feeds)

        def get_next(self) -> Feed | None:
            return next(self.feeds, None)

    logging.disable(logging.WARNING)
    ready = made.with_suffix(".ready.onnx")
    quant_pre_process(str(model), str(ready))
    quantize_static(
        str(ready),
        str(made),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


def ours(model: Path, made: Path, feeds: list[Feed], way: str, target_sqnr: float | None) -> None:
    """Quantize without the proof, as theirs has none."""
    import onnxq

    options: dict[str, Any] = {"verify": False, "target_sqnr": target_sqnr}
    if way == "min-max":
        options |= {"method": "min-max", "smooth": False, "bias_correction": False}
        options["rounding"] = "nearest"
    onnxq.save(onnxq.quantize(model, "onnxruntime", feeds, **options).model, made)


def child(way: str, model: Path, made: Path, samples: Path, target_sqnr: float | None) -> None:
    """One way in this process; its costs as one line of JSON."""
    with np.load(samples) as arrays:
        stacks = dict(arrays)
    count = len(next(iter(stacks.values())))
    feeds = [{name: stack[at] for name, stack in stacks.items()} for at in range(count)]
    before = time.process_time()
    if way == "theirs":
        theirs(model, made, feeds)
    else:
        ours(model, made, feeds, way, target_sqnr)
    print(json.dumps({"cpu": time.process_time() - before, "peak": peak_megabytes()}))


def store(feeds: list[Feed], path: Path) -> None:
    """Write the samples for the children."""
    stacks = {name: np.stack([feed[name] for feed in feeds]) for name in feeds[0]}
    np.savez(path, allow_pickle=False, **stacks)


def compile_sources() -> None:
    """Compile onnxq as pip compiles what it installs, the other tool among it."""
    for package in ("onnxq", "passes", "benchmarks"):
        compileall.compile_dir(ROOT / package, quiet=1)


def measured(
    way: str, model: Path, made: Path, samples: Path, target_sqnr: float | None
) -> dict[str, float]:
    """One way in a process of its own."""
    words = [way, str(model), str(made), str(samples)]
    words += [] if target_sqnr is None else [str(target_sqnr)]
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.quantize_child", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{model.stem}, {way}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    way, model, made, samples, *db = sys.argv[1:]
    child(way, Path(model), Path(made), Path(samples), float(db[0]) if db else None)
