"""Models that took minutes though they are small files: what they cost is counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.graph import from_proto
from onnxq.proof.difference import RunningDiff, Tolerance
from onnxq.proof.step_size import StepSize
from onnxq.running import sessions
from onnxq.running.samples import samples
from onnxq.workflows.convert import convert
from tests.checks.counted_code import assert_every_line_linear, counted
from tests.models import growing_models


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The counted copy, in which lists count as long early."""
    with counted():
        monkeypatch.setattr(import_module("onnxq.graph.links"), "LONG", 4)
        yield


def _looked_at(build: growing_models.Build, lint: bool = False) -> Callable[[int], Any]:
    """`inspect` or `lint` of a model of a given size."""

    def prepare(size: int) -> Callable[[], object]:
        proto = build(size)
        read = import_module("onnxq.graph").from_proto
        if lint:
            return lambda: import_module("onnxq.workflows.lint_model").lint(
                read(proto), "onnxruntime"
            )
        return lambda: import_module("onnxq.workflows.summary").summarize(read(proto)).to_json()

    prepare(2)()  # tables that are made once
    return prepare


@pytest.mark.usefixtures("copy")
def test_33000_quantizers_that_share_one_scale_took_263_seconds() -> None:
    assert_every_line_linear(_looked_at(growing_models.shared_scale), 20)


@pytest.mark.usefixtures("copy")
def test_a_concat_of_5000_inputs_took_15_seconds() -> None:
    assert_every_line_linear(_looked_at(growing_models.wide_concat), 20)


@pytest.mark.usefixtures("copy")
@pytest.mark.parametrize("lint", [False, True])
def test_50000_initializers_took_25_seconds_and_53_to_lint(lint: bool) -> None:
    assert_every_line_linear(_looked_at(growing_models.initializers, lint), 40)


def _large() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N,C,1024,4096] x) => (float[N,C,1024,4096] y)
        <float s = {0.05}, uint8 z = {3}> {
            q = QuantizeLinear(x, s, z)  y = DequantizeLinear(q, s, z) }"""
    )


def test_the_proof_of_two_nodes_on_large_tensors_took_97_seconds() -> None:
    """Eight times too large a sample, and ten copies of it in float64."""
    feed = next(samples(sessions.reference(_large()), count=1))
    assert feed["x"].shape == (1, 1, 1024, 4096)
    running = RunningDiff("y", "y", StepSize(np.asarray(0.05)))
    tracemalloc.start()
    try:
        running.add(feed["x"], feed["x"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < feed["x"].nbytes / 4
    assert running.result("", "", Tolerance()).passed


def test_two_nodes_on_large_tensors_are_proven() -> None:
    assert convert(from_proto(_large()), "onnxruntime", count=1).proven


@pytest.mark.usefixtures("copy")
def test_sums_that_have_as_many_ways_through_as_two_to_their_number() -> None:
    """Whether a value can be negative was asked along every way."""
    convert = import_module("onnxq.workflows.convert").convert
    model = import_module("onnxq.graph").from_proto(growing_models.plain_sums(200))
    assert convert(model, "openvino", verify=False).artifacts
