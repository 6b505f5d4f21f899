"""What is measured, and how: each function returns numbers, ready for JSON."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import raw_protobuf, with_onnxq
from benchmarks.child import measure
from benchmarks.clock import in_turns, median_ratio
from benchmarks.memory import REWRITERS, anonymous
from benchmarks.models import (
    CODES_SIDE,
    FLOAT_SIDE,
    FLOAT_WEIGHTS,
    LARGE_WEIGHTS,
    chain,
    large_model,
    quantized_model,
)
from benchmarks.peers import PEERS


def machine() -> dict[str, Any]:
    """Where the numbers come from."""
    names = ("onnx", "onnx-graphsurgeon", "numpy", "protobuf")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **{name: importlib.metadata.version(name) for name in names},
    }


def speed(nodes: int, repeats: int) -> dict[str, Any]:
    """BatchNormalization folding and Q/DQ insertion, against the loop written by hand.

    Timed is the CPU time of the process from the bytes of the model and plain scales to the bytes
    of the result; making the model is not. Both run in this process in turns, and so does onnxq
    on a quarter of the nodes.
    """
    large, small = chain(nodes), chain(nodes // 4)
    seconds = in_turns(
        {
            "raw_protobuf": lambda: raw_protobuf.fold_and_quantize(large),
            "onnxq": lambda: with_onnxq.fold_and_quantize(large),
            "onnxq_quarter": lambda: with_onnxq.fold_and_quantize(small),
        },
        repeats,
    )
    return {
        "nodes": nodes,
        "repeats": repeats,
        "seconds": seconds,
        "median": {name: statistics.median(each) for name, each in seconds.items()},
        "ratio": median_ratio(seconds["onnxq"], seconds["raw_protobuf"]),
        "growth": median_ratio(seconds["onnxq"], seconds["onnxq_quarter"]),
    }


def reading(nodes: int, repeats: int) -> dict[str, Any]:
    """A QDQ file to the canonical form, with the readers of all dialects, and a quarter of it."""
    # Four float nodes of the chain become six with Q/DQ.
    large, small = (
        with_onnxq.fold_and_quantize(chain(count * 4 // 6)) for count in (nodes, nodes // 4)
    )
    seconds = in_turns(
        {
            "onnxq": lambda: with_onnxq.read(large),
            "onnxq_quarter": lambda: with_onnxq.read(small),
        },
        repeats,
    )
    return {
        "nodes": nodes,
        "seconds": seconds,
        "median": {name: statistics.median(each) for name, each in seconds.items()},
        "growth": median_ratio(seconds["onnxq"], seconds["onnxq_quarter"]),
    }


def folding(nodes: int, limit: int) -> dict[str, Any]:
    """BatchNormalization folding alone, each tool in a process of its own.

    Timed is the CPU time from bytes to bytes, after a first call on a tiny model.
    """
    tools: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="onnxq-bench-") as folder:
        path = Path(folder) / "chain.onnx"
        path.write_bytes(chain(nodes).data)
        for name, peer in PEERS.items():
            version = peer.version
            if version is None:
                tools[name] = {"skipped": "not installed: pip install '.[bench]'"}
            else:
                tools[name] = {"version": version, **measure("fold", name, path, limit)}
    return {"nodes": nodes, "limit": limit, "tools": tools}


def memory(weights: int = LARGE_WEIGHTS) -> dict[str, Any]:
    """Peak memory while two weights of a model with a large data file are rewritten."""
    with large_model(weights) as path:
        size = path.with_suffix(".data").stat().st_size
        tools = {name: measure("memory", name, path) for name in REWRITERS}
    return {"bytes": size, "tools": tools}


def quantized(side: int = CODES_SIDE, weights: int = FLOAT_WEIGHTS) -> list[dict[str, Any]]:
    """Anonymous memory of commands on one large weight of codes, and on many float weights."""
    convert = ("convert", "--backend", "onnxruntime", "--no-verify")
    found = []
    with quantized_model(1, side, floats=False) as path:
        size = path.with_suffix(".data").stat().st_size
        for words in (("inspect",), convert):
            job = {"job": f"{words[0]}, one int8 weight", "bytes": size}
            found.append(job | anonymous(words, path, writes=words is convert))
    with quantized_model(weights, FLOAT_SIDE, floats=True) as path:
        size = path.with_suffix(".data").stat().st_size
        job = {"job": f"{convert[0]}, {weights} float weights", "bytes": size}
        found.append(job | anonymous(convert, path, writes=True))
    return found
