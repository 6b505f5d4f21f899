"""The two sides of the speed benchmark do the same job, and its verdicts can fail."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxq
from benchmarks import quantize_memory, raw_protobuf, with_onnxq
from benchmarks.child import measure
from benchmarks.memory import REWRITERS, anonymous, sampled
from benchmarks.models import (
    CHANNELS,
    LARGE_SIDE,
    SIZE,
    chain,
    large_model,
    quantized_model,
)
from benchmarks.targets import judge
from tests.checks.plain_run import run_plain


def run(data: bytes) -> np.ndarray:
    x = np.random.default_rng(1).normal(0.0, 1.0, (1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    return run_plain(data, {"input": x})[0]


def ops(data: bytes) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load_model_from_string(data).graph.node)


def test_both_sides_write_the_same_network() -> None:
    small = chain(48)
    by_hand = raw_protobuf.fold_and_quantize(small)
    ours = with_onnxq.fold_and_quantize(small)
    assert ops(by_hand) == ops(ours)
    assert ops(ours) == {
        **dict.fromkeys(("Conv", "Relu", "Add", "QuantizeLinear"), 12),
        "DequantizeLinear": 24,
    }
    expected = run(by_hand)
    np.testing.assert_array_equal(run(ours), expected)
    assert len(np.unique(expected)) > expected.size / 2
    # The scales are fit for the network: quantization costs accuracy, not the result.
    exact = run(small.data)
    assert 0 < np.abs(expected - exact).max() < 0.1 * np.abs(exact).max()


def test_folding_alone_keeps_the_numbers() -> None:
    small = chain(48)
    folded = with_onnxq.fold(small.data)
    assert ops(folded)["BatchNormalization"] == 0
    np.testing.assert_allclose(run(folded), run(small.data), rtol=1e-5, atol=1e-5)


def test_children_report_or_say_why_not(tmp_path: Path) -> None:
    path = tmp_path / "chain.onnx"
    path.write_bytes(chain(4000).data)  # long enough for a clock that ticks every 10 ms
    result = measure("fold", "onnxq", path)
    assert result["nodes"] == 3000
    assert result["batch_norms_left"] == 0
    assert result["seconds"] > 0
    assert "missing.onnx" in measure("fold", "onnxq", tmp_path / "missing.onnx")["failed"]


def test_rewriting_large_weights_changes_two_of_them(tmp_path: Path) -> None:
    with large_model(3) as path:
        before = onnx.load(path)
        REWRITERS["onnxq"](path, tmp_path / "out.onnx")
    after = onnx.load(tmp_path / "out.onnx")
    values = {t.name: np.frombuffer(t.raw_data, np.float32) for t in before.graph.initializer}
    for index, node in enumerate(after.graph.node):
        made = next(t for t in after.graph.initializer if t.name == node.input[1])
        factor = np.float32(0.5 if index < 2 else 1.0)
        assert list(made.dims) == [LARGE_SIDE, LARGE_SIDE]
        np.testing.assert_array_equal(
            np.frombuffer(made.raw_data, np.float32), values[f"weight_{index}"] * factor
        )


def results(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "speed": {"nodes": 8, "ratio": 3.0, "growth": 4.0},
        "reading": {"nodes": 8, "growth": 4.0},
        "memory": {"bytes": 2**30, "tools": {"onnxq": {"megabytes": 200.0}}},
        "quantized": [
            {"job": "inspect", "bytes": 2**29, "megabytes": 60.0},
            {"job": "convert", "bytes": 2**29, "megabytes": 80.0},
            {"job": "convert many", "bytes": 2**32, "megabytes": 90.0},
        ],
        "folding": {
            "nodes": 8,
            "tools": {
                "onnxq": {"seconds": 1.0},
                "onnxslim": {"over": 100},
                "onnxscript": {"skipped": "not installed"},
            },
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = made
        for parent in parents:
            place = place[parent]
        place[last] = value
    return made


def test_targets_that_are_met() -> None:
    verdicts = judge(results())
    assert [v.met for v in verdicts] == [*[True] * 8, None]
    assert verdicts[7].measured == "> 100.0x"
    json.dumps([v.to_json() for v in verdicts])


@pytest.mark.parametrize(
    ("place", "value", "missed"),
    [
        ("speed__ratio", 4.1, 0),
        ("speed__growth", 4.7, 1),
        ("reading__growth", 4.7, 2),
        ("memory__tools__onnxq", {"megabytes": 300.0}, 3),
        ("memory__tools__onnxq", {"failed": "out of memory"}, 3),
        ("folding__tools__onnxslim", {"seconds": 0.9}, 7),
        ("folding__tools__onnxslim", {"failed": "crashed"}, 7),
        ("folding__tools__onnxscript", {"seconds": 1.0}, 8),
    ],
)
def test_targets_that_are_missed(place: str, value: Any, missed: int) -> None:
    assert [i for i, v in enumerate(judge(results(**{place: value}))) if v.met is False] == [missed]


@pytest.mark.parametrize(("index", "megabytes"), [(0, 300.0), (1, 1000.0), (2, 2000.0)])
def test_memory_targets_that_are_missed(index: int, megabytes: float) -> None:
    jobs = results()["quantized"]
    jobs[index] |= {"megabytes": megabytes}
    verdicts = judge(results(quantized=jobs))
    assert [i for i, v in enumerate(verdicts) if v.met is False] == [4 + index]
    jobs[index] = {"job": "convert", "bytes": 1, "failed": "killed"}
    assert judge(results(quantized=jobs))[4 + index].met is False


def test_anonymous_memory_of_a_command_is_measured() -> None:
    with quantized_model(2, 512, floats=False) as path:
        found = anonymous(("inspect",), path)
        assert 10 < found["megabytes"] < 1000
        words = ("convert", "--backend", "onnxruntime", "--no-verify")
        made = anonymous(words, path, writes=True)
        assert made["bytes_written"] > 2 * 512 * 512
        assert "no-such" in anonymous(("inspect", "--no-such"), path)["failed"]
    with quantized_model(2, 512, floats=True) as path:
        assert onnx.load(path).graph.node[0].op_type == "QuantizeLinear"
        assert len(onnxq.convert(path, "onnxruntime", verify=False).model.nodes("MatMul")) == 2


def test_the_memory_of_quantize_is_measured_and_judged(tmp_path: Path) -> None:
    path, given = tmp_path / "layers.onnx", tmp_path / "layers.npy"
    quantize_memory.layers(2, 64, path)
    np.save(given, np.random.default_rng(0).standard_normal((3, 64), dtype=np.float32))
    words = (str(path), "npy file", str(given))
    found = sampled("benchmarks.quantize_memory", *words, "3")
    assert 10 < found["megabytes"] < 1000
    assert "3 of 4 samples" in sampled("benchmarks.quantize_memory", *words, "4")["failed"]
    assert quantize_memory.weights_row(found)[3]
    assert not quantize_memory.weights_row(found | {"megabytes": 1500.0})[3]
    assert not quantize_memory.weights_row({"failed": "it died"})[3]
    for more, met in ((1.04, True), (1.06, False)):
        both = [found, found | {"megabytes": more * found["megabytes"]}]
        assert quantize_memory.samples_row("resnet18", "generator", both)[3] is met
