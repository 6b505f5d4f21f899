"""What `onnxq demo --train` runs: handwritten digits, trained and deployed for every backend.

    python -m torch_bridge.demo FOLDER

A small network learns scikit-learn's digits (1,437 images of 8x8 pixels to train, 360 to test) in
float. For each backend a copy gets its quantizers, is calibrated on 256 images and trained with LSQ
(learned step sizes) for two epochs; then it is deployed. The test images are counted twice: as
torch recognises them, and as onnxruntime does with the written file. (If that is a float model with
ranges beside it, onnxruntime runs the network which both together describe; the proof has read it
back.) Every line on standard output is a JSON object: {"progress": words}, at the end
{"result": the table}.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onnxq.backend import Backend, OnnxFile, backends
from onnxq.graph import load
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Role
from onnxq.reading import canonical
from onnxq.running.sessions import reference
from torch_bridge.deploy import deploy
from torch_bridge.prepare import prepare
from torch_bridge.state import calibrating, enable_quantization

TESTED = 360
BATCH = 32
FLOAT_EPOCHS, FLOAT_RATE = 6, 5e-3
EPOCHS, RATE = 2, 1e-3
OTHER_GRIDS = {"nnie": "nnie", "vitis": "tqt"}
"""Logarithms and powers of two: their algorithms, where LSQ has no step to learn."""

Data = tuple[Tensor, Tensor]
Row = dict[str, Any]


class Network(nn.Module):
    """Three convolutions; the second ends in an activation with both signs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.conv3 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(8)
        self.last = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Ten scores for each image."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.hardswish(self.bn2(self.conv2(x)))
        x = F.relu(self.bn3(self.conv3(x)))
        scores: Tensor = self.last(x.flatten(1))
        return scores


def digits() -> tuple[Data, Data]:
    """Images in -1..1 and labels, to train and to test."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.tensor(found.images[:, None] / 8 - 1, dtype=torch.float32)
    y = torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    kept, tested = order[:-TESTED], order[-TESTED:]
    return (x[kept], y[kept]), (x[tested], y[tested])


def train(model: nn.Module, data: Data, rate: float, seed: int, epochs: int) -> None:
    """Adam, with a rate that falls to 0 along a cosine."""
    x, y = data
    order = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    steps = -(-len(x) // BATCH) * epochs
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    model.train()
    for _ in range(epochs):
        for part in torch.split(torch.randperm(len(x), generator=order), BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            falling.step()


@torch.no_grad()
def recognised(model: Callable[[Tensor], Tensor], data: Data) -> int:
    """Images whose label is right."""
    return int((model(data[0]).argmax(1) == data[1]).sum())


def float_network(data: Data, seed: int, epochs: int = FLOAT_EPOCHS) -> nn.Module:
    """The network that all others start from."""
    torch.manual_seed(seed)
    model = Network()
    train(model, data, FLOAT_RATE, seed, epochs)
    return model.eval()


def _deployed(backend: Backend, base: nn.Module, data: Data, tested: Data, to: Path) -> Row:
    """One row of the table: a network trained for a backend, and its files."""
    algorithm = OTHER_GRIDS.get(backend.name, "lsq")
    q = prepare(base, backend, (data[0][:2],), weight=algorithm, activation=algorithm).eval()
    with torch.no_grad(), calibrating(q):
        q(data[0][:256])
    enable_quantization(q)
    train(q, data, RATE, 0, EPOCHS)
    axes = {"image": {0: "batch"}}
    made = deploy(q.eval(), (tested[0],), to, input_names=["image"], dynamic_axes=axes)
    first = backend.outputs[0]
    clean = isinstance(first, OnnxFile) and first.clean
    written = to / f"{made.stem}{first.suffix}"
    session = reference(made.subject.canonical if clean else canonical(load(written))[0])
    name, output = session.inputs[0].name, session.outputs[0].name
    in_file = recognised(lambda x: torch.from_numpy(session.run({name: x.numpy()})[output]), tested)
    weight, activation = (_bits(made.table, role) for role in (Role.WEIGHT, Role.ACTIVATION))
    return {
        "backend": backend.name,
        "algorithm": algorithm,
        "bits": f"W{weight} A{activation}" if weight else "logarithmic",
        "torch": recognised(q, tested) / TESTED,
        "onnxruntime": in_file / TESTED,
        "proven": made.proven,
        "files": [str(file) for file in made.files],
    }


def _bits(table: QParamTable, role: Role) -> str:
    """The numbers of bits in a table, such as '4/8'."""
    found = {row.qtype.bits for row in table if row.role is role}
    return "/".join(map(str, sorted(found)))


def run(
    folder: Path, tell: Callable[[str], None], only: Container[str] | None = None
) -> dict[str, Any]:
    """Train and deploy for every backend, or for those in `only`; returns the table."""
    started = time.monotonic()
    data, tested = digits()
    tell("training in float")
    base = float_network(data, 0)
    rows = []
    for name, backend in backends().items():
        if not isinstance(backend, Backend) or not backend.writes:
            continue
        if only is None or name in only:
            tell(f"training and deploying for {name}")
            rows.append(_deployed(backend, base, data, tested, folder / name))
    return {
        "images": TESTED,
        "float": recognised(base, tested) / TESTED,
        "seconds": time.monotonic() - started,
        "backends": rows,
    }


def main(folder: str) -> None:
    """Run, and tell a program what is going on."""

    def tell(**what: Any) -> None:
        sys.stdout.write(json.dumps(what, allow_nan=False) + "\n")
        sys.stdout.flush()

    warnings.simplefilter("ignore")  # torch's own, of its exporter
    torch.set_num_threads(1)  # the work is tiny: threads wait for each other, longest on a busy CPU
    tell(result=run(Path(folder), lambda words: tell(progress=words)))


if __name__ == "__main__":
    main(sys.argv[1])
