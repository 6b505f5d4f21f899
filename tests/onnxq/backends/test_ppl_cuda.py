"""PPL on GPUs: uint8 per channel, MQBench's text and the public engine's JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from tests.models.networks import NETWORKS, quantized
from tests.onnxq.backends.check import proven_by_files


def test_scheme() -> None:
    scheme = find_backend("ppl-cuda").scheme
    assert scheme.weight.per_channel
    assert not scheme.weight.symmetric
    assert scheme.weight.range == scheme.activation.range == (0, 255)
    assert "Conv" in find_backend("ppl-cuda").placement.outputs


@pytest.mark.parametrize("network", NETWORKS)
def test_networks_are_proven_by_their_files(network: str) -> None:
    texts = proven_by_files("ppl-cuda", network)
    assert set(texts) == {"_clip_ranges.json", "_ppl_nn.json"}


def test_the_text_has_the_reach_of_the_ranges() -> None:
    done = onnxq.convert(quantized("resnet", find_backend("ppl-cuda")), "ppl-cuda", verify=False)
    text = next(a.content for a in done.artifacts if a.suffix == "_clip_ranges.json")
    assert isinstance(text, str)
    ranges = dict(line.rsplit(": ", 1) for line in text.splitlines())
    rows = {row.tensor: row for row in done.table if row.tensor in ranges}
    assert len(rows) == len(ranges) >= 10
    for name, row in rows.items():
        assert float(ranges[name]) == np.max(np.abs(row.range))


def test_weights_have_a_scale_per_channel() -> None:
    found = json.loads(proven_by_files("ppl-cuda", "resnet")["_ppl_nn.json"])
    channels = [e for e in found["quant_info"].values() if e["per_channel"]]
    assert len(channels) == 7
    assert {e["data_type"] for e in found["op_info"].values()} <= {"INT8", "FLOAT32"}
