"""Every backend on every kind of network: converted and proven, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.errors import BackendError, OnnxqError, SaveError
from tests.checks.tables import TableRow
from tests.models.networks import NETWORKS, quantized, samples
from tests.suites.backend_matrix import CONSUMERS, attempt, targets

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"

NOTHING_TO_QUANTIZE = {("academic-nlp", "unet"), ("tensorrt-nlp", "unet")}
"""Rules that look at Linear and MatMul alone, and a network that has neither."""

REFUSED = {
    ("ncnn --variant table", "resnet"): "consumers other than int8 layers see it rounded",
    ("ncnn --variant table", "mobilenet"): "consumers other than int8 layers see it rounded",
}
"""Target and network that it cannot run, and part of the reason."""


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("backend", "variant"), targets())
def test_a_network_made_for_a_backend_converts(
    backend: str, variant: str, network: str, table_row: TableRow
) -> None:
    cell = attempt(backend, variant, network)
    table_row(
        "backend x network: largest difference of what was written",
        target=cell.target,
        network=network,
        result=cell.result,
        files=" ".join(cell.files) or cell.refused[:100],
    )
    page = PAGE.read_text(encoding="utf-8")
    assert f"\n| {cell.target} |" in page
    assert (f"\n| {cell.target} | {network} |" in page) == bool(cell.refused)
    if (backend, network) in NOTHING_TO_QUANTIZE:
        assert "no quantizers" in cell.refused
    elif (cell.target, network) in REFUSED:
        assert REFUSED[cell.target, network] in cell.refused
    else:
        assert not cell.refused
        assert cell.proven, cell.difference


@pytest.mark.parametrize("source", ["onnxruntime", "tensorrt", "snpe", "academic"])
@pytest.mark.parametrize("backend", sorted({name for name, _ in targets()}))
def test_a_network_made_for_another_backend_converts_or_names_what_does_not_fit(
    source: str, backend: str, table_row: TableRow
) -> None:
    model = quantized("resnet", find_backend(source))
    refused = None
    try:
        done = onnxq.convert(model, backend, data=samples("resnet", 2))
    except OnnxqError as error:
        refused = error
    if refused is not None:
        assert isinstance(refused, BackendError | SaveError)
        assert "'" in refused.what, "no tensor is named"
        assert refused.fix
    else:
        assert done.proven, [(p.what, p.report.to_json()) for p in done.proofs]
    result = "proven" if refused is None else "refused"
    table_row("quantized for one backend, converted for another", source=source, target=backend,
              result=result)  # fmt: skip


MQBENCH = (
    *("academic", "academic-nlp", "nnie", "openvino", "ppl", "ppl-cuda", "snpe", "stpu"),
    *("tengine", "tensorrt", "tensorrt-nlp", "tvm", "vitis"),
)
"""The targets that MQBench has too."""


@pytest.mark.parametrize("name", sorted({name for name, _ in targets()}))
def test_what_differs_from_files_of_mqbench_is_told(name: str) -> None:
    told = find_backend(name).mqbench
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]
    if name in MQBENCH:
        assert told
        assert all(f"\n    * {difference}\n" in section for difference in told)
    else:
        assert told is None
        assert "MQBench has no such target" in section


def test_backends_name_the_runtimes_that_were_compared() -> None:
    measured: dict[str, set[str]] = {}
    for row in json.loads(CONSUMERS.read_text(encoding="utf-8")):
        measured.setdefault(row["backend"], set()).add(f"{row['consumer']} {row['version']}")
    for name, _ in targets():
        backend = find_backend(name)
        if backend.proof == "consumer":
            assert set(backend.consumers) == measured[name]
        else:
            assert backend.consumers == ()
