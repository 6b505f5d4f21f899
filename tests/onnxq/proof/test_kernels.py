"""Deep networks: what rounding becomes in them is no fault, and faults are found and named."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.graph import Model
from onnxq.proof.judging import fault
from onnxq.proof.kernels import kernels
from onnxq.proof.prove import Proven, prove
from onnxq.proof.trusted import Running, Trusted
from onnxq.proof.verify import verify
from onnxq.quant.qparam_table import QParamTable
from onnxq.running.optimizer import optimize
from onnxq.running.sessions import Kind
from tests.models.build import parse, quantize, weight
from tests.models.deep_networks import NETWORKS, quantized, samples
from tests.models.faults import FAULTS, broken, within_reach

BACKEND = find_backend("onnxruntime")
SAMPLES = samples(2, seed=1)
MOVED = ("DequantizeLinear", "QuantizeLinear", "Reshape", "Squeeze", "Transpose")
"""Operators that onnxruntime adds and removes where codes are read twice."""


@dataclass(frozen=True)
class Made:
    """A deep network and its file."""

    source: Model
    table: QParamTable
    file: onnx.ModelProto

    def proven(self, file: onnx.ModelProto, folder: Path) -> Proven:
        path = folder / "file.onnx"
        path.write_bytes(file.SerializeToString())
        return prove(BACKEND, self.source, {"_qdq.onnx": path}, self.table, data=SAMPLES)


@functools.cache
def made(network: str) -> Made:
    source = quantized(network, BACKEND)
    done = onnxq.convert(source, BACKEND, verify=False)
    return Made(source, done.table, done.model.to_proto())


@pytest.mark.parametrize("network", NETWORKS)
def test_a_deep_network_is_proven(network: str, tmp_path: Path, table_row: Any) -> None:
    known = made(network)
    found = known.proven(known.file, tmp_path)
    assert all(proof.passed for proof in found.proofs)
    meaning, deployed = (proof.report for proof in found.proofs)
    assert not meaning.kernels, "the reference session computes the same as the source"
    trusted = Trusted(known.source, SAMPLES)
    alone = kernels(trusted, Running(known.file, "deployed"), 0.02)
    assert all(kernel.passed for kernel in alone), "integer kernels are more precise than allowed"
    worst = deployed.worst
    assert worst is not None
    table_row(
        "Drift of deep networks",
        network=network,
        kernels=len(alone),
        off=f"{max(kernel.deviation for kernel in alone):.4f} steps",
        drift=f"{worst.max:.3f}, {worst.sqnr:.1f} dB",
        judged="by kernels" if deployed.drifts else "by outputs",
    )


def test_some_of_them_drift(tmp_path: Path) -> None:
    """Otherwise the tests above would say nothing of it."""
    known = made("efficientnet")
    _, deployed = (proof.report for proof in known.proven(known.file, tmp_path).proofs)
    assert deployed.drifts
    assert any("but that is drift: each of the" in note for note in deployed.notes)
    assert fault(deployed) is None
    strict = verify(known.file, known.file, SAMPLES, sessions=("reference", "deployed"))
    assert strict.worst is not None
    assert strict.worst.max > 0.1
    told = deployed.to_json()
    assert told["passed"]
    assert len(told["kernels"]) == len(deployed.kernels) > 100


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_fault_in_the_file_is_found(network: str, name: str, tmp_path: Path) -> None:
    known = made(network)
    file = broken(known.file, name)
    meaning = known.proven(file, tmp_path).proofs[0]
    assert not meaning.passed
    kernel = meaning.report.wrong
    assert kernel is not None, "it is named"
    wrong = [each for each in meaning.report.kernels if not each.passed]
    assert len(wrong) <= 4, "and no other kernel but those that use what is broken"
    assert {each.name for each in wrong} <= within_reach(file)


@pytest.mark.parametrize("network", NETWORKS)
def test_kernels_are_those_of_the_whole_file(network: str) -> None:
    """Codes as further outputs hinder no fusion."""
    file = made(network).file
    tapped = onnx.ModelProto()
    tapped.CopyFrom(file)
    codes = [n.output[0] for n in file.graph.node if n.op_type == "QuantizeLinear"]
    tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in codes)
    whole, parts = (
        Counter(n.op_type for n in optimize(each, "extended").graph.node if n.op_type not in MOVED)
        for each in (file, tapped)
    )
    assert parts == whole


def test_rounding_that_passes_change_is_no_fault_either() -> None:
    """In the reference session, too: folded norms add in another order."""
    source = chained(60)
    random = np.random.default_rng(0)
    data = [{"x": random.normal(size=(1, 8, 12, 12)).astype(np.float32)} for _ in range(2)]
    done = onnxq.convert(source, "onnxruntime", data=data)
    strict = verify(source, done.model, data)
    assert not strict.passed, "else the network does not show it"
    assert done.proofs[0].report.drifts
    assert done.proven


def test_a_kernel_that_is_wrong_is_named() -> None:
    """onnxruntime's integer Softmax computes 0 where its sums overflow: a range that is too small.

    The factor 1 / scale times the largest probability exceeds its 32 bits.
    """
    model = parse("g (float[4,8] x) => (float[4,8] y) { s = Softmax(x) y = Relu(s) }")
    quantize(model, "x", qtype="uint8", scale=np.float32(0.1), zero_point=128)
    quantize(model, "s", qtype="uint8", scale=np.float32(0.1 / 255))
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    x[:, 1] = 12.0
    done = onnxq.convert(model, BACKEND, data=[{"x": x}])
    meaning, deployed = done.proofs
    assert meaning.passed
    assert not deployed.passed
    kernel = deployed.report.wrong
    assert kernel is not None
    assert (kernel.op, kernel.deviation) == ("Softmax", 254.5)
    found = fault(deployed.report)
    assert found is not None
    assert "Softmax" in found[0]
    assert "the file is right, but the kernel that onnxruntime's optimiser chooses" in found[1]


@pytest.mark.parametrize("kind", ["reference", "deployed"])
def test_a_quantizer_of_a_narrower_range_is_a_cut(kind: Kind) -> None:
    """Its codes are clamped before they are values; no later kernel pays for its flips."""
    model = parse("g (float[4,8] x) => (float[4,8] z) { y = Relu(x) z = Neg(y) }")
    quantize(model, "x", qtype="uint8", scale=np.float32(0.05), zero_point=128)
    quantize(model, "y", qtype="uint8", scale=np.float32(0.05), lo=0, hi=100)
    quantize(model, "z", qtype="int8", scale=np.float32(0.05))
    file = onnxq.convert(model, BACKEND, verify=False).model
    assert file.nodes("Clip")
    x = np.random.default_rng(0).normal(0, 4, (4, 8)).astype(np.float32)
    found = kernels(Trusted(model, [{"x": x}]), Running(file.to_proto(), kind), 0.02)
    assert [each.op for each in found] == ["", "Relu", "Neg"]
    assert all(each.passed for each in found)


@pytest.mark.parametrize("scale", [1 / 255, 1 / 256])
def test_the_integer_softmax_is_right_over_the_range_from_0_to_1(scale: float) -> None:
    """By up to a step: it multiplies by 1 / scale without its fraction."""
    model = parse("g (float[4,8] x) => (float[4,8] y) { s = Softmax(x) y = Relu(s) }")
    quantize(model, "x", qtype="uint8", scale=np.float32(0.1), zero_point=128)
    quantize(model, "s", qtype="uint8", scale=np.float32(scale))
    random = np.random.default_rng(0)
    data = [{"x": random.normal(0, 6, (4, 8)).astype(np.float32)} for _ in range(20)]
    file = onnxq.convert(model, BACKEND, verify=False).model.to_proto()
    assert "QLinearSoftmax" in [n.op_type for n in optimize(file, "extended").graph.node]
    alone = kernels(Trusted(model, data), Running(file, "deployed"), 0.25)
    assert alone
    assert all(kernel.passed for kernel in alone)
    assert max(kernel.deviation for kernel in alone) < 1


def chained(layers: int) -> Model:
    """Convolutions with norms to fold: folding rounds differently, and many layers amplify it."""
    random = np.random.default_rng(0)
    body, constants, x = "", [], "x"
    for i in range(layers):
        body += f"c{i} = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>({x}, w{i}) "
        body += f"n{i} = BatchNormalization(c{i}, g{i}, b{i}, m{i}, v{i}) r{i} = Relu(n{i}) "
        x = f"r{i}"
        values = {"w": random.normal(size=8 * 8 * 9) / 4, "b": random.normal(size=8)}
        values |= {"g": random.uniform(0.5, 2, 8), "v": random.uniform(0.5, 2, 8)}
        values["m"] = random.normal(size=8)
        for name, value in values.items():
            shape = "8,8,3,3" if name == "w" else "8"
            numbers = ", ".join(map(str, value.astype(np.float32)))
            constants.append(f"float[{shape}] {name}{i} = {{{numbers}}}")
    image = "float[1,8,12,12]"
    model = parse(f"g ({image} x) => ({image} {x}) <{', '.join(constants)}> {{ {body} }}")
    quantize(model, "x", qtype="uint8", scale=np.float32(6 / 255), zero_point=128)
    for i in range(layers):
        quantize(model, f"r{i}", qtype="uint8", scale=np.float32(6 / 255))
        weight(model, f"w{i}", scale=np.float32(0.008))
    return model
