"""The memory of `onnxq quantize`: of many weights, and of many samples.

Anonymous memory, at most at once, of a process that quantizes for onnxruntime and proves the files.
Called by `python -m benchmarks.quantize`.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.memory import sampled

if TYPE_CHECKING:
    from benchmarks.float_networks import Feed

LAYERS, SIDE = 20, 5792
"""Square float32 matrices of 128 MiB: 2.5 GiB."""
MOST_MEGABYTES = 1500.0
FEW, MANY = 8, 512
MOST_GROWTH = 1.05
ROUNDS = 5
KINDS = {"resnet18": ("generator", "npz files", "npy file"), "encoder": ("generator", "npz files")}
"""How the samples of each network are given; an .npy file is for one input."""

Row = tuple[str, str, str, bool]


def layers(count: int, side: int, path: Path) -> None:
    """A chain of MatMul, Add and Relu with the weights in a file; few rows are in memory."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    with path.with_suffix(".data").open("wb") as file:
        for index in range(count):
            weight = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[side, side])
            place = {"location": f"{path.stem}.data", "offset": file.tell()}
            for start in range(0, side, 256):
                rows = rng.standard_normal((min(256, side - start), side), dtype=np.float32)
                file.write((rows / np.float32(np.sqrt(side / 2))).tobytes())
            weight.data_location = TensorProto.EXTERNAL
            for key, value in (place | {"length": 4 * side * side}).items():
                weight.external_data.append(onnx.StringStringEntryProto(key=key, value=str(value)))
            bias = rng.normal(0.0, 0.1, side).astype(np.float32)
            weights += [weight, onnx.numpy_helper.from_array(bias, f"b{index}")]
            x, y = f"x{index}" if index else "x", f"x{index + 1}" if index + 1 < count else "y"
            nodes += [
                helper.make_node("MatMul", [x, f"w{index}"], [f"m{index}"]),
                helper.make_node("Add", [f"m{index}", f"b{index}"], [f"a{index}"]),
                helper.make_node("Relu", [f"a{index}"], [y]),
            ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", side]) for n in "xy"]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(
        helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    )


def of_weights(folder: Path) -> dict[str, Any]:
    """Quantize a network whose weights take 2.5 GiB."""
    path, samples = folder / "layers.onnx", folder / "layers.npy"
    layers(LAYERS, SIDE, path)
    values = np.random.default_rng(1).standard_normal((FEW, SIDE), dtype=np.float32)
    np.save(samples, values)
    found = sampled(*_command(path, "npy file", samples, FEW))
    for file in (path, path.with_suffix(".data")):
        file.unlink()
    return found


def of_samples(name: str, kind: str, folder: Path) -> list[dict[str, Any]]:
    """Quantize a network with few samples, then with many."""
    from benchmarks.float_networks import write  # imports torch, which is not to be measured

    path = folder / f"{name}.onnx"
    if not path.exists():
        write(name, path)
    return [
        _median(*_command(path, kind, _stored(name, kind, folder, count), count))
        for count in (FEW, MANY)
    ]


def _median(*command: str) -> dict[str, Any]:
    """The run in the middle of some: the peaks of two equal runs differ by up to 4 %."""
    runs = [sampled(*command) for _ in range(ROUNDS)]
    broken = [run for run in runs if "megabytes" not in run]
    return (
        broken[0] if broken else sorted(runs, key=lambda run: float(run["megabytes"]))[ROUNDS // 2]
    )


def _command(path: Path, kind: str, given: Path, count: int) -> tuple[str, ...]:
    return ("benchmarks.quantize_memory", str(path), kind, str(given), str(count))


def _stored(name: str, kind: str, folder: Path, count: int) -> Path:
    """Samples in files: a folder of .npz, which a generator reads too, or one .npy."""
    feeds = itertools.islice(_feeds(name), count)
    place = folder / f"{name}.{count}.{'npy' if kind == 'npy file' else 'samples'}"
    if place.exists():
        return place
    if kind == "npy file":
        first = next(feeds)["x"]
        made = np.lib.format.open_memmap(place, "w+", first.dtype, (count, *first.shape[1:]))
        for index, value in enumerate(itertools.chain([first], (each["x"] for each in feeds))):
            made[index] = value[0]
        return place
    place.mkdir()
    for index, feed in enumerate(feeds):
        np.savez(place / f"{index:04}.npz", **feed)  # type: ignore[arg-type]
    return place


def _feeds(name: str) -> Iterator[Feed]:
    from benchmarks.float_networks import data

    for seed in itertools.count(1):
        yield from data(name, 32, seed)


def rows(folder: Path) -> list[Row]:
    """What is asked for, what was measured, and whether that is enough."""
    found = of_weights(folder)
    made = [weights_row(found)]
    for name, kinds in KINDS.items():
        made += [samples_row(name, kind, of_samples(name, kind, folder)) for kind in kinds]
    return made


def weights_row(found: dict[str, Any]) -> Row:
    """The verdict on many weights."""
    what = f"{LAYERS * SIDE * SIDE * 4 / 2**30:.1f} GiB of weights, anonymous memory"
    size = found.get("megabytes")
    shown = f"{size:.0f} MB in {found['elapsed']:.0f} s" if size else str(found)
    return what, f"< {MOST_MEGABYTES:.0f} MB", shown, bool(size and size < MOST_MEGABYTES)


def samples_row(name: str, kind: str, found: list[dict[str, Any]]) -> Row:
    """The verdict on many samples."""
    what = f"{name}, {kind}: anonymous memory with {MANY} samples / with {FEW}"
    if not all("megabytes" in each for each in found):
        return what, f"<= {MOST_GROWTH:g} x", str(found), False
    few, many = (each["megabytes"] for each in found)
    shown = f"{many / few:.2f} x ({few:.0f} to {many:.0f} MB)"
    return what, f"<= {MOST_GROWTH:g} x", shown, many / few <= MOST_GROWTH


def child(path: Path, kind: str, given: Path, count: int) -> None:
    """Quantize in this process, and write the files."""
    import onnxq

    def generated() -> Iterator[Feed]:
        for file in sorted(given.iterdir()):
            with np.load(file) as arrays:
                yield dict(arrays)

    source = generated() if kind == "generator" else given
    found = onnxq.quantize(path, "onnxruntime", source)
    if found.samples != count or not found.proven:
        raise RuntimeError(f"{found.samples} of {count} samples, proofs {found.proofs}")
    target = given.parent / f"{path.stem}.{os.getpid()}.quantized"
    found.save(target)


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
