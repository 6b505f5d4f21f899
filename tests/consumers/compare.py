"""A network converted for a backend, run by the real consumer, compared with the reference session.

The consumer runs in a process of its own (`lowered`): a fault there is a failed test, and
libraries that do not bear each other never meet. The unit is the step of the output's quantizer;
where an output is float, it is the step that 8 bits would have: its largest magnitude / 127.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import onnxq
from onnxq.backend import Backend, backends
from onnxq.proof.difference import RunningDiff, Tolerance
from onnxq.proof.step_size import Steps, StepSize
from onnxq.running import sessions
from onnxq.running.sessions import open_model
from tests.checks.tables import TableRow
from tests.consumers.lowered import VARIABLE, ConsumerFailed, run_lowered
from tests.models import networks

RUNNERS = Path(__file__).parent / "runners"
SAMPLES = 8
NETWORKS = tuple(networks.NETWORKS)

Values = dict[str, np.ndarray]


class Ran(NamedTuple):
    """What a consumer computed."""

    values: Values
    lowered: str
    """The instruction set it had to be limited to, see `lowered`; '': none."""


Runner = Callable[[Path, Values, list[str], Path], Ran]


@dataclass(frozen=True)
class Measurement:
    """How far a consumer is from the reference."""

    consumer: str
    version: str
    backend: str
    variant: str | None
    network: str
    biases: str
    """Of the network it is compared with: 'float', or 'int32' steps of the sums."""
    unit: str = "step"
    """'step' of the output's quantizer, or '1/127 of the largest magnitude'."""
    max_steps: float = 0.0
    moved: float = 0.0
    """Share of elements that differ by half a step or more."""
    elements: int = 0
    refused: str = ""
    """What the consumer says of a file that it does not run."""
    lowered: str = ""
    """The instruction set it had to be limited to on this machine; '': none."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def version_of(distribution: str, why: str) -> str:
    """The version of an installed package; skips the test where there is none."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{distribution} is not installed: {why}")


def written(backend: str) -> Backend:
    """The backend; skips the test where there are no files to run."""
    found = backends().get(backend)
    if not isinstance(found, Backend) or not found.writes:
        pytest.skip(f"onnxq writes no files for {backend}")
    return found


def python(script: str, *more: str, interpreter: str = sys.executable) -> Runner:
    """A consumer with a Python interface; one that needs other packages has its own interpreter.

    `more` are further arguments of the script.
    """

    def run(model: Path, feeds: Values, outputs: list[str], folder: Path) -> Ran:
        inputs, found = folder / "inputs.npz", folder / "outputs.npz"
        np.savez(inputs, **feeds)
        files = (str(model), str(inputs), str(found))
        command = [interpreter, str(RUNNERS / script), *files, *more]
        lowered = run_lowered(command)
        with np.load(found) as values:
            return Ran({key: values[key] for key in values.files}, lowered)

    return run


def node(script: str, packages: Path) -> Runner:
    """A consumer that node runs."""

    def run(model: Path, feeds: Values, outputs: list[str], folder: Path) -> Ran:
        runs = []
        for key, value in feeds.items():
            name, _, number = key.rpartition("/")
            file = folder / f"input_{number}.bin"
            file.write_bytes(np.ascontiguousarray(value, np.float32).tobytes())
            made = {o: str(folder / f"output_{i}_{number}.bin") for i, o in enumerate(outputs)}
            runs.append({"name": name, "dims": value.shape, "file": str(file), "outputs": made})
        manifest = folder / "manifest.json"
        manifest.write_text(json.dumps({"model": str(model), "runs": runs}), encoding="utf-8")
        lowered = run_lowered(["node", str(RUNNERS / script), str(packages), str(manifest)])
        found = {}
        for number, entry in enumerate(runs):
            for name, file in entry["outputs"].items():
                shape = json.loads(Path(f"{file}.json").read_text(encoding="utf-8"))
                found[f"{name}/{number}"] = np.fromfile(file, np.float32).reshape(shape)
        return Ran(found, lowered)

    return run


def node_packages(package: str) -> tuple[Path, str]:
    """Where node finds a package, and its version; skips the test where it does not."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed: make test-consumers needs it for onnxruntime-web")
    folder = Path(os.environ.get("ONNXQ_NODE_PACKAGES", "node_modules")).resolve()
    manifest = folder / package / "package.json"
    if not manifest.is_file():
        pytest.skip(f"{package} is not in {folder}: make test-consumers installs it with npm")
    return folder.parent, json.loads(manifest.read_text(encoding="utf-8"))["version"]


def measure(
    consumer: str,
    version: str,
    backend: Backend,
    network: str,
    run: Runner,
    folder: Path,
    *,
    suffix: str | None = None,
    variant: str | None = None,
    int32_biases: bool = False,
) -> Measurement:
    """Convert, run and compare; `suffix` names the file to run where it is not the first.

    Integer kernels round float biases to steps of the sums they add them to. With `int32_biases`
    the network has such biases from the start, so that this is no difference.
    """
    source = networks.quantized(network, backend, int32_biases=int32_biases)
    feeds = networks.samples(network, SAMPLES, seed=2)
    done = onnxq.convert(source, backend, data=feeds[:2], variant=variant)
    assert done.proven
    done.stem = "model"
    done.save(folder)
    reference = sessions.reference(source)
    keyed = {f"{name}/{i}": value for i, feed in enumerate(feeds) for name, value in feed.items()}
    outputs = [o.name for o in reference.outputs]
    file = folder / f"model{suffix or done.artifacts[0].suffix}"
    found, lowered = run(file, keyed, outputs, folder)
    steps = Steps(open_model(source))
    diffs, unit = [], "step"
    for name in outputs:
        wanted = [reference.run(feed)[name] for feed in feeds]
        step = steps.of(name)
        if step is None:
            unit = "1/127 of the largest magnitude"
            step = StepSize(np.asarray(max(np.abs(w).max() for w in wanted) / 127))
        diff = RunningDiff(name, name, step)
        for number, value in enumerate(wanted):
            diff.add(value, found[f"{name}/{number}"])
        diffs.append(diff.result("", "", Tolerance()))
    assert not any(d.nonfinite for d in diffs)
    elements = sum(d.count for d in diffs)
    return Measurement(
        *(consumer, version, backend.name, variant, network),
        biases="int32" if int32_biases else "float",
        unit=unit,
        max_steps=round(max(d.max for d in diffs), 6),
        moved=round(sum(d.moved * d.count for d in diffs) / elements, 6),
        elements=elements,
        lowered=lowered,
    )


def refused(
    consumer: str,
    version: str,
    backend: Backend,
    network: str,
    run: Runner,
    folder: Path,
    reason: str,
) -> Measurement:
    """A network that the consumer does not take: it must say `reason`."""
    with pytest.raises(ConsumerFailed, match=re.escape(reason)):
        measure(consumer, version, backend, network, run, folder)
    return Measurement(consumer, version, backend.name, None, network, "float", refused=reason)


def tell_lowered(found: Measurement, table_row: TableRow) -> None:
    """Let the end of the run name a runtime that this machine's instruction set kills."""
    if found.lowered:
        table_row(
            "runtimes that died here and had to be lowered",
            runtime=f"{found.consumer} {found.version}",
            network=found.network,
            **{VARIABLE: found.lowered},
        )
