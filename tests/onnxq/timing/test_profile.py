"""onnxruntime's profile: what is counted, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.errors import LoadError
from onnxq.running.ort_session import new_options, start
from onnxq.timing.profile import read_profile
from tests.models.build import parse


def run(ts: int, dur: int) -> dict[str, Any]:
    return {"cat": "Session", "name": "model_run", "ts": ts, "dur": dur, "args": {}}


def kernel(name: str, ts: int, dur: int, op: str = "Conv", **types: Any) -> dict[str, Any]:
    args = {"op_name": op, "input_type_shape": [{"float": [1]}], "output_type_shape": []} | types
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur, "args": args}


def times(*events: dict[str, Any]) -> dict[str, float]:
    return {k.name: k.microseconds for k in read_profile(json.dumps(events))}


def test_the_first_run_is_left_out_and_the_median_counts() -> None:
    events = [run(0, 100), run(100, 100), run(200, 100), run(300, 100)]
    events += [kernel("a", at, took) for at, took in ((10, 90), (110, 3), (210, 5), (310, 80))]
    assert times(*events) == {"a": 5}


def test_a_kernel_that_runs_often_in_a_run_counts_in_full() -> None:
    events = [run(0, 100), run(100, 100), *(kernel("a", 100 + 10 * n, 4) for n in range(5))]
    assert times(*events) == {"a": 20}


def test_one_run_is_better_than_none() -> None:
    assert times(kernel("a", 10, 4), run(0, 100)) == {"a": 4}


def test_an_if_is_not_counted_beside_its_body() -> None:
    events = [run(0, 99), run(100, 99), kernel("if", 110, 50, "If"), kernel("a", 120, 7)]
    assert times(*events) == {"a": 7}


def test_types_are_read() -> None:
    event = kernel("a", 1, 1, output_type_shape=[{"uint8": [1, 2]}, {"int64": []}])
    (found,) = read_profile(json.dumps([run(0, 9), event]))
    assert (found.inputs, found.outputs, found.op) == (("float",), ("uint8", "int64"), "Conv")


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ("[", "not a profile"),
        ("[1]", "event 0 of the profile"),
        ('[{"cat": "Session", "name": "model_run", "ts": 1}]', "'dur' is missing"),
        (json.dumps([run(0, 9), kernel("a", 1, 1) | {"ts": "1"}]), "'ts' is"),
        (json.dumps([run(0, 9), kernel("a", 1, 1) | {"args": []}]), "not an object"),
        (json.dumps([run(0, 9), kernel("a", 1, 1) | {"args": {}}]), "'op_name' is missing"),
        (json.dumps([run(0, 9), kernel("a", 1, 1, output_type_shape=[1])]), "list of objects"),
        (json.dumps([run(0, 9), kernel("a", 20, 1)]), "outside of all runs"),
        (json.dumps([run(0, 9), kernel("a", 1, 1) | {"more": 1}]), "unknown key 'more'"),
    ],
)
def test_anything_else_is_refused(events: str, text: str) -> None:
    with pytest.raises(LoadError, match=text):
        read_profile(events)


def test_a_real_profile(tmp_path: Path) -> None:
    model = parse(
        """g (float[1, 3] x, bool c) => (float[1, 3] z) {
            y = Exp(x)
            z = If (c) <then_branch = g1 () => (float[1, 3] a) { a = Erf(y) },
                        else_branch = g2 () => (float[1, 3] b) { b = Neg(y) }>
        }"""
    )
    options = new_options("", {})
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "p")
    session = start(model.to_proto().SerializeToString(), "m", options)
    for _ in range(3):
        session.run(None, {"x": np.zeros((1, 3), np.float32), "c": np.array(True)})
    found = read_profile(Path(session.end_profiling()).read_text(encoding="utf-8"))
    assert [k.op for k in found] == ["Exp", "Erf"]
    assert {k.outputs for k in found} == {("float",)}
