"""What a proof accepts, and what it must not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.backend import TableFile, find_backend
from onnxq.edit import constant, set_input
from onnxq.graph import Model, from_proto
from onnxq.opsets import upgrade_rules
from onnxq.proof.prove import prove
from onnxq.proof.verify import verify
from onnxq.quant.qparam_table import QParamTable
from onnxq.running import sessions
from onnxq.side_files.side_file import SideFile
from onnxq.workflows import demo
from tests.models.build import parse, quantize, weight
from tests.models.networks import quantized
from tests.models.zoo import ZOO


@pytest.mark.parametrize("scale", [1.0, 1.1])
def test_files_are_proven_against_a_model_and_nothing_is_changed(
    scale: float, tmp_path: Path
) -> None:
    """All it takes are values: a model, the files and the table, whoever made them."""
    backend = find_backend("tvm")
    source = quantized("conv1d", backend)
    before = source.to_proto()
    made = onnxq.convert(source, backend, verify=False)
    for node in made.model.nodes("DequantizeLinear"):
        node.inputs[1].values = np.asarray(node.inputs[1].values * np.float32(scale))
    (file,) = made.save(tmp_path)
    told: list[str] = []
    suffix = backend.outputs[0].suffix
    found = prove(backend, source, {suffix: file}, made.table, count=2, progress=told.append)
    assert [proof.report.samples for proof in found.proofs] == [2] * len(backend.sessions)
    assert all(proof.passed for proof in found.proofs) == (scale == 1.0)
    assert found.cost is None
    assert len(told) == len(found.proofs)
    assert source.to_proto() == before


def test_a_session_that_runtimes_refuse_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sessions.session.__globals__, "deployed", lambda source, taps=(): sessions.reference(source)
    )
    done = onnxq.convert(demo.quantize(demo.build()), "onnxruntime")
    assert [p.refused for p in done.proofs] == ["", "onnxruntime refuses the deployed session"]
    assert done.proofs[1].what == "qdq.onnx (deployed: refused)"
    assert not done.proven
    assert done.to_json()["proofs"][1]["passed"] is False


def test_quantizers_in_bodies_are_proven_in_the_reference_session_alone() -> None:
    done = onnxq.convert(from_proto(ZOO["qdq_in_if"]()), "onnxruntime")
    assert [p.what for p in done.proofs] == ["qdq.onnx (reference)"]
    assert done.proven
    assert any("body of another node" in note for note in done.notes)


def test_data_from_a_generator_serves_every_proof() -> None:
    random = np.random.default_rng(0)
    images = ({"image": random.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(3))
    done = onnxq.convert(demo.quantize(demo.build()), "tensorrt", data=images)
    assert [p.report.samples for p in done.proofs] == [3, 3, 3]
    assert done.proven


def test_nothing_compared_is_nothing_proven() -> None:
    model = quantize(parse("g (float[0,4] x) => (float[0,4] y) { y = Neg(x) }"), "x")
    done = onnxq.convert(model, "tensorrt")
    assert not done.proven
    assert "no finite value" in done.proofs[0].report.notes[0]


def negative_gain(code: int) -> Model:
    """Conv of symmetric int8 weights, one with this code, and a BatchNormalization of gain -1."""
    model = parse(
        f"""g (float[1,1,4,4] x) => (float[1,1,4,4] y)
        <float[1,1,1,1] w = {{{code / 10}}}, float[1] g = {{-1}}, float[1] z = {{0}},
         float[1] v = {{1}}> {{
            c = Conv<kernel_shape=[1,1]>(x, w)
            y = BatchNormalization(c, g, z, z, v)
        }}"""
    )
    return weight(quantize(model, "x"), "w")


@pytest.mark.parametrize(("code", "left"), [(-127, 0), (-128, 1)])
def test_a_symmetric_model_stays_symmetric_for_tensorrt(code: int, left: int) -> None:
    done = onnxq.convert(negative_gain(code), "tensorrt")
    assert done.proven
    assert len(done.model.nodes("BatchNormalization")) == left
    assert not onnxq.convert(negative_gain(code), "onnxruntime").model.nodes("BatchNormalization")


def test_initializers_listed_as_inputs_are_constants_when_deployed() -> None:
    proto = ZOO["qdq_residual"]()
    for tensor in proto.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        proto.graph.input.append(info)
    done = onnxq.convert(from_proto(proto), "onnxruntime")
    assert done.proven
    assert len(done.model.graph.inputs) == 1
    assert any("listed as graph inputs" in n for n in done.model.upgrades)


def test_layers_of_a_conversion_agree_one_by_one() -> None:
    """Folding renames with the values: what has the same name is the same tensor.

    On images like those the ranges were seen on: propagate-ranges clamps some tensors a node
    earlier, which shows where values leave their range.
    """
    source = demo.quantize(demo.build())
    images = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    for backend in ("onnxruntime", "tensorrt"):
        done = onnxq.convert(source, backend)
        report = verify(source, done.model, images, per_layer=True)
        assert report.first_divergence is None
        assert len(report.layers) > 10


# -- sessions with other rounding -----------------------------------------------------------------

FEW_BITS = {4: (15, 1.0, 48), 2: (3, 5.0, 12)}
"""For bits: the highest code, a scale with which it means 15, how many values are ties."""


def coarse_inside(bits: int) -> Model:
    """64 features with few bits, their weighted sums with 8."""
    highest, scale, _ = FEW_BITS[bits]
    columns = ", ".join(str(round(0.1 * (1 + i % 3), 1)) for i in range(64 * 8))
    model = parse(
        f"""g (float[1,64] x) => (float[1,8] y) <float[64,8] w = {{{columns}}}> {{
            h = Relu(x)
            y = MatMul(h, w)
        }}"""
    )
    weight(model, "w", scale=np.float32(0.01))
    quantize(model, "h", qtype="uint8", lo=0, hi=highest, scale=np.float32(scale))
    return quantize(model, "y", qtype="uint8", scale=np.float32(0.8))


def features(bits: int) -> np.ndarray:
    """Codes of all sizes; some values lie exactly between two of them."""
    highest, scale, ties = FEW_BITS[bits]
    x = scale * (np.arange(64) % highest).astype(np.float32)
    x[:ties] += scale / 2
    return x[None]


def proven_with(session_input: Any, model: Model, x: np.ndarray, monkeypatch: Any) -> Any:
    """The conversion, where the deployed session computes with another input than it is given."""

    def deployed(source: Any, taps: Any = ()) -> sessions.Session:
        session = sessions.reference(source, taps)
        session.kind = "deployed"
        run = session.run
        monkeypatch.setattr(
            session, "run", lambda feeds, *names: run({"x": session_input(feeds["x"])}, *names)
        )
        return session

    monkeypatch.setitem(sessions.session.__globals__, "deployed", deployed)
    return onnxq.convert(model, "onnxruntime", data=[{"x": x}])


@pytest.mark.parametrize("bits", FEW_BITS)
def test_values_between_two_coarse_codes_are_no_fault(bits: int, monkeypatch: Any) -> None:
    # Half to even: one of two such values goes up, and with a little more both do.
    done = proven_with(lambda x: x + 1e-4, coarse_inside(bits), features(bits), monkeypatch)
    reference, deployed = (p.report.worst for p in done.proofs)
    assert reference.max == 0
    assert 4 < deployed.max < 4 * 2 ** (8 - bits)  # more than 8 bits inside would explain
    assert done.proven


@pytest.mark.parametrize("bits", FEW_BITS)
@pytest.mark.parametrize(
    "fault",
    [lambda x: x[:, ::-1].copy() * 3, lambda x: np.zeros_like(x), lambda x: 2 * x],
    ids=["other order and scale", "zeros", "doubled"],
)
def test_gross_faults_are_found_with_few_bits(bits: int, fault: Any, monkeypatch: Any) -> None:
    done = proven_with(fault, coarse_inside(bits), features(bits), monkeypatch)
    assert [p.passed for p in done.proofs] == [True, False]
    assert not done.proven


def test_eight_bits_are_held_to_four_steps(monkeypatch: Any) -> None:
    model = quantize(parse("g (float[1,64] x) => (float[1,64] y) { y = Neg(x) }"), "x")
    model = quantize(model, "y")
    x = np.linspace(-5, 5, 64, dtype=np.float32)[None]
    assert proven_with(lambda x: x + 0.4, model, x, monkeypatch).proven
    assert not proven_with(lambda x: x + 0.6, model, x, monkeypatch).proven


def forgetful(side_file: SideFile) -> SideFile:
    """A format that does not read back the input of the network."""

    def read(content: Any, model: Model) -> QParamTable:
        return QParamTable([r for r in side_file.read(content, model) if r.tensor != "x"])

    return replace(side_file, read=read)


@pytest.mark.parametrize("name", ["snpe", "ppl-cuda"])
def test_a_file_that_leaves_something_out_is_not_proven(name: str) -> None:
    backend = find_backend(name)
    model = quantized("conv1d", backend)
    assert onnxq.convert(model, backend).proven
    for at, output in enumerate(backend.outputs):
        if isinstance(output, TableFile):
            outputs = list(backend.outputs)
            outputs[at] = replace(output, format=forgetful(output.format))
            done = onnxq.convert(model, replace(backend, outputs=tuple(outputs)))
            assert not done.proven
            assert sum(not p.passed for p in done.proofs) == 1


def test_a_range_that_is_off_is_not_proven() -> None:
    backend = find_backend("ppl-cuda")
    at, output = next((i, o) for i, o in enumerate(backend.outputs) if "clip" in o.suffix)
    assert isinstance(output, TableFile)
    held = output.format

    def read(content: Any, model: Model) -> QParamTable:
        return QParamTable([r.with_(scale=r.scale * 1.00001) for r in held.read(content, model)])

    outputs = list(backend.outputs)
    outputs[at] = replace(output, format=replace(held, read=read))
    done = onnxq.convert(quantized("conv1d", backend), replace(backend, outputs=tuple(outputs)))
    assert not done.proven


def half_quantized() -> Model:
    """Only one of the two readers of x sees it quantized."""
    return parse(
        """g (float[1,1,4,4] x) => (float[1,1,4,4] y)
        <float[1,1,1,1] w = {0.5}, float s = {0.1}, int8 z = {0}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            c = Conv(d, w)
            y = Add(c, x)
        }"""
    )


def test_readers_that_a_file_does_not_name_are_not_taken_from_the_graph() -> None:
    """Who reads the file elsewhere takes its ranges for all readers, and so does the proof."""

    def careless(side_file: SideFile) -> SideFile:
        def write(table: QParamTable, model: Model) -> Any:
            return side_file.write(QParamTable([r.with_(readers=None) for r in table]), model)

        return replace(side_file, write=write)

    backend = find_backend("tensorrt")
    outputs = tuple(
        replace(o, format=careless(o.format)) if isinstance(o, TableFile) else o
        for o in backend.outputs
    )
    done = onnxq.convert(half_quantized(), replace(backend, outputs=outputs))
    assert [p.passed for p in done.proofs] == [True, False, False]


def test_legacy_files_that_cannot_tell_the_model_are_left_out() -> None:
    done = onnxq.convert(half_quantized(), "tensorrt")
    assert [a.suffix for a in done.artifacts] == ["_qdq.onnx"]
    assert [p.what for p in done.proofs] == ["qdq.onnx (reference)"]
    assert done.proven
    (note,) = [n for n in done.notes if "not written" in n]
    assert note.startswith("clip_ranges.json, calibration.cache not written: ")
    assert "'x': only some of its consumers see it quantized" in note


def test_kernels_that_are_steps_off_are_told(monkeypatch: Any) -> None:
    """Within the limit of four steps the conversion is proven, but the user hears of it."""
    model = quantize(parse("g (float[1,64] x) => (float[1,64] y) { y = Neg(x) }"), "x")
    model = quantize(model, "y")
    x = 0.1 * np.arange(-32, 32, dtype=np.float32)[None]
    done = proven_with(lambda x: x + np.float32(0.3), model, x, monkeypatch)
    assert done.proven
    assert any("integer kernels are up to 3 steps off at 'y'" in note for note in done.notes)
    done = proven_with(lambda x: x + np.float32(0.1), model, x, monkeypatch)
    assert not any("integer kernels" in note for note in done.notes)


# -- a later opset than that of the source --------------------------------------------------------


def averaged() -> Model:
    """Sums of nine codes on a grid on which every odd sum lies between two codes."""
    model = parse(
        """g (float[1,1,8,8] x) => (float[1,1,6,6] y) <float[1,1,1,1] w = {0.7}> {
            a = AveragePool <kernel_shape = [3, 3], pads = [0, 0, 0, 0]> (x)
            y = Conv(a, w)
        }"""
    )
    quantize(model, "x", qtype="uint8", scale=np.float32(0.1))
    quantize(model, "a", qtype="uint8", scale=np.float32(0.2 / 9))
    quantize(model, "y", qtype="uint8", scale=np.float32(0.14 / 9))
    return weight(model, "w", lo=-8, hi=7)


def pixels() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.integers(0, 20, (1, 1, 8, 8)).astype(np.float32) / 10} for _ in range(4)]


def test_another_kernel_in_a_later_opset_is_no_fault_of_the_file() -> None:
    source = averaged()
    done = onnxq.convert(source, "qnn", data=pixels())
    assert (source.opset, done.model.opset) == (17, 21)  # 4-bit codes need it
    assert done.proven
    strict = verify(source, done.model, pixels())
    # Some CPUs add alike in both; elsewhere each kernel is judged by itself.
    assert bool(done.proofs[0].report.kernels) == (not strict.passed)
    assert verify(done.model, done.model, pixels()).passed


def test_an_opset_raised_the_wrong_way_is_not_proven(monkeypatch: Any) -> None:
    def swap(node: Any, model: Model) -> None:
        node.op = "MaxPool"

    monkeypatch.setitem(upgrade_rules.RULES, ("AveragePool", 19), swap)
    done = onnxq.convert(averaged(), "qnn", data=pixels())
    assert done.model.nodes("MaxPool")
    assert not done.proven


def deep16(layers: int) -> Model:
    """Convolutions with a norm to fold, all on grids of 16 bits."""
    random = np.random.default_rng(0)
    body, constants, x = "", [], "x"
    for i in range(layers):
        body += f"c{i} = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>({x}, w{i}) "
        body += f"n{i} = BatchNormalization(c{i}, g{i}, b{i}, m{i}, v{i}) r{i} = Relu(n{i}) "
        x = f"r{i}"
        values = {"w": random.normal(size=8 * 8 * 9) / 6}
        values |= {k: random.uniform(0.5, 2, 8) for k in "gv"}
        values |= {k: random.normal(size=8) for k in "bm"}
        for name, value in values.items():
            shape = "8,8,3,3" if name == "w" else "8"
            numbers = ", ".join(map(str, value.astype(np.float32)))
            constants.append(f"float[{shape}] {name}{i} = {{{numbers}}}")
    image = "float[1,8,12,12]"
    model = parse(f"g ({image} x) => ({image} {x}) <{', '.join(constants)}> {{ {body} }}")
    scale = np.float32(12 / 65535)
    quantize(model, "x", qtype="uint16", scale=scale, zero_point=32768)
    for i in range(layers):
        quantize(model, f"r{i}", qtype="uint16", scale=scale)
        weight(model, f"w{i}", scale=np.float32(0.006))
    return model


def test_a_16_bit_network_is_not_failed_by_the_rounding_of_floats() -> None:
    done = onnxq.convert(deep16(8), "qnn")
    report = done.proofs[0].report
    assert report.worst is not None
    assert report.worst.moved > 0.01, "else the network does not show it"
    assert report.worst.max < 64
    assert done.proven


@pytest.mark.parametrize(("shift", "passes"), [(0, True), (12, False)])
def test_a_16_bit_network_is_failed_by_a_shift(shift: int, passes: bool, tmp_path: Path) -> None:
    """An output off by 12 codes of 65536 everywhere is a fault, not rounding."""
    backend = find_backend("qnn")
    source = deep16(2)
    made = onnxq.convert(source, backend, verify=False)
    last = made.model.graph.outputs[0].inputs[0]
    assert last.op == "DequantizeLinear"
    moved = np.asarray(last.inputs[2].values + shift, np.uint16)
    set_input(last, 2, constant(made.model, "moved", moved))
    files = {a.suffix: f for a, f in zip(made.artifacts, made.save(tmp_path), strict=True)}
    found = prove(backend, source, files, made.table)
    assert found.proofs[0].passed is passes
