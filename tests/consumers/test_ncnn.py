"""ncnn on its own files: whole networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.graph import from_proto
from onnxq.running import sessions
from tests.checks.tables import TableRow
from tests.consumers.compare import NETWORKS, Measurement, measure, python, version_of, written
from tests.models import vision_networks

Record = Callable[[Measurement], Measurement]


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str, tmp_path: Path, record: Record) -> None:
    version = version_of("ncnn", "make test-consumers installs it")
    run = python("run_ncnn.py")
    found = record(
        measure("ncnn", version, written("ncnn"), network, run, tmp_path, suffix=".ncnn.param")
    )
    assert found.max_steps <= 1


@pytest.mark.parametrize("network", vision_networks.NETWORKS)
def test_published_layout(network: str, tmp_path: Path, table_row: TableRow) -> None:
    """Outputs differ by a few steps, and by no more than two quantized networks may.

    A sum in the middle between two codes is rounded to either of them, as the last bit of a float
    product decides; from there the difference spreads through all the layers after it. Both
    networks are then as far from the float one as quantization takes them: the sum of both
    distances is the most they differ.
    """
    version_of("ncnn", "make test-consumers installs it")
    backend = find_backend("ncnn")
    model = vision_networks.quantized(network, backend)
    (given,) = model.graph.inputs
    feeds = [{given.name: image} for image in vision_networks.images(2, seed=5)]
    done = onnxq.convert(model, backend, data=feeds[:1])
    assert done.proven
    done.stem = "m"
    done.save(tmp_path)
    keyed = {f"{given.name}/{i}": feed[given.name] for i, feed in enumerate(feeds)}
    packed, plain = (
        python("run_ncnn.py", *layout)(tmp_path / "m.ncnn.param", keyed, [], tmp_path).values
        for layout in ((), ("plain",))
    )
    exact = sessions.reference(model)
    real = sessions.reference(from_proto(vision_networks.exported(network)))
    for output in [o.name for o in exact.outputs]:
        wanted = [exact.run(feed)[output] for feed in feeds]
        step = max(np.abs(w).max() for w in wanted) / 127

        def off(values: list[np.ndarray], wanted: list[np.ndarray], step: float) -> float:
            pairs = zip(values, wanted, strict=True)
            return max(float(np.abs(v.reshape(w.shape) - w).max() / step) for v, w in pairs)

        cost = off([real.run(feed)[output] for feed in feeds], wanted, step)
        found = {
            layout: off([made[f"{output}/{i}"] for i in range(len(feeds))], wanted, step)
            for layout, made in (("packed", packed), ("plain", plain))
        }
        table_row(
            "whole networks in ncnn, in steps of 1/127 of the largest output",
            network=network,
            output=output,
            packed=round(found["packed"], 3),
            plain=round(found["plain"], 3),
            **{"quantization itself": round(cost, 3)},
        )
        assert max(found.values()) <= 1 + 2 * cost, found
        assert cost <= 10
