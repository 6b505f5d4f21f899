"""MatMulNBits and GatherBlockQuantized become block quantizers: onnxruntime runs both sides."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxq.arrays.bit_packing import pack
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import QParamsError
from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.quant.qparams import Role
from onnxq.running import sessions
from onnxq.storage.node_metadata import QUANT_MAX, QUANT_MIN, QUANT_TYPE, add_metadata
from passes.read_matmul_nbits import MATMUL, ReadMatmulNbits
from passes.to_qdq import ToQdq
from tests.checks.dialect_round_trip import FIXTURES, first_output, fixture, fixture_inputs
from tests.models.build import apply, bit_equal, ops, reasons, run
from tests.models.zoo import ZOO, inputs

INFO = helper.make_tensor_value_info


def model_of(
    op: str,
    tensors: dict[str, np.ndarray | None],
    shape: list[int],
    kind: int = TensorProto.FLOAT,
    **attrs: Any,
) -> Model:
    """One node whose inputs, the input x among them, are given by name; None leaves one out."""
    names = ["" if v is None and k != "x" else k for k, v in tensors.items()]
    constants = [numpy_helper.from_array(v, k) for k, v in tensors.items() if v is not None]
    node = helper.make_node(op, names, ["y"], name="node", domain="com.microsoft", **attrs)
    given_x = [INFO("x", kind, shape)] if "x" in tensors else []
    out = [INFO("y", kind, None)]
    graph = helper.make_graph([node], "g", given_x, out, initializer=constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return from_proto(helper.make_model(graph, opset_imports=imports, ir_version=8))


def nbits(
    bits: int = 4,
    count: int = 40,
    columns: int = 6,
    block: int = 16,
    *,
    zero: str = "",
    bias: bool = False,
    signs: bool = False,
    dtype: Any = np.float32,
    flat: bool = False,
    seed: int = 0,
    **attrs: Any,
) -> tuple[Model, np.ndarray]:
    """A MatMulNBits with random codes, and its weight (K, N) by the definition in float64."""
    random = np.random.default_rng(seed)
    blocks = -(-count // block)
    codes = random.integers(0, 1 << bits, (columns, blocks, block))
    scale = random.uniform(0.01, 0.02, (columns, blocks)).astype(dtype)
    if signs:
        scale *= random.choice([-1, 1], scale.shape).astype(dtype)
    zeros: np.ndarray = np.full((columns, blocks), 1 << (bits - 1))
    stored = None
    if zero == "packed":
        zeros = random.integers(0, 1 << bits, (columns, blocks))
        stored = pack(zeros, bits)
    elif zero:
        zeros = random.integers(0, 1 << bits, (columns, blocks)) + (0.5 if zero == "half" else 0)
        stored = zeros.astype(dtype)
    tensors = {"x": None, "B": pack(codes, bits), "s": scale, "z": stored}
    if flat:
        tensors = {k: v if v is None or k == "B" else v.reshape(-1) for k, v in tensors.items()}
    if bias:
        tensors |= {"g": None, "b": random.normal(size=columns).astype(dtype)}
    real = (codes - zeros[..., None]) * scale[..., None].astype(np.float64)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    attrs = {"K": count, "N": columns, "bits": bits, "block_size": block, **attrs}
    model = model_of("MatMulNBits", tensors, [3, count], kind, **attrs)
    return model, real.reshape(columns, -1)[:, :count].T


def data(model: Model, seed: int = 0) -> np.ndarray:
    (x,) = model.graph.inputs
    return np.random.default_rng(seed).normal(size=x.shape).astype(x.dtype)


def quantizer(model: Model) -> Any:
    (node,) = model.nodes(FAKE_QUANTIZE)
    return node


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bits": 8},
        {"bits": 2},
        {"zero": "packed"},
        {"bits": 8, "zero": "packed"},
        {"bits": 2, "zero": "packed"},
        {"zero": "float"},
        {"signs": True},
        {"signs": True, "zero": "packed"},
        {"bias": True},
        {"bias": True, "zero": "packed", "flat": True},
        {"count": 32, "block": 32},
        {"count": 10},
        {"columns": 1},
    ],
)
def test_weight_and_product(options: dict[str, Any]) -> None:
    model, weight = nbits(**options)
    read, trace = apply(model, ReadMatmulNbits())
    assert ops(read) == ["FakeQuantize", "MatMul"] + ["Add"] * ("bias" in options)
    assert not trace.notes or all("opset" in n or "IR" in n for n in trace.notes)
    params = params_of(quantizer(read))
    assert (params.role, params.axis) == (Role.WEIGHT, 0)
    assert (params.block, params.qtype.name) == (
        options.get("block", 16),
        f"uint{options.get('bits', 4)}",
    )
    real = array(quantizer(read).inputs[0])
    assert real is not None
    # One float32 rounding of an exact product, and on the grid already.
    np.testing.assert_array_equal(real, weight.astype(np.float32))
    np.testing.assert_array_equal(params.fake(real), real)
    x = data(model)
    (have,), (want,) = run(read, x), run(model, x)
    # Sums in another order.
    assert np.abs(have - want).max() <= 1e-6 * np.abs(want).max()
    assert "com.microsoft" not in read.opsets


def test_float16() -> None:
    model, weight = nbits(dtype=np.float16)
    read, _ = apply(model, ReadMatmulNbits())
    assert quantizer(read).inputs[1].dtype == np.float16
    np.testing.assert_array_equal(array(quantizer(read).inputs[0]), weight.astype(np.float16))
    x = data(model)
    (have,), (want,) = run(read, x), run(model, x)
    assert np.abs(have - want).max() <= 2e-3 * np.abs(want).max()


def test_block_of_scale_zero_is_all_zero() -> None:
    model, weight = nbits()
    proto = model.to_proto()
    scale = next(t for t in proto.graph.initializer if t.name == "s")
    values = numpy_helper.to_array(scale).copy()
    values[2, 1] = 0
    scale.CopyFrom(numpy_helper.from_array(values, "s"))
    weight[16:32, 2] = 0
    read, _ = apply(from_proto(proto), ReadMatmulNbits())
    np.testing.assert_array_equal(array(quantizer(read).inputs[0]), weight.astype(np.float32))


def test_nodes_that_share_codes_share_a_quantizer() -> None:
    proto = nbits()[0].to_proto()
    twin = proto.graph.node.add()
    twin.CopyFrom(proto.graph.node[0])
    twin.name, twin.output[0] = "twin", "t"
    proto.graph.output.append(INFO("t", 1, None))
    read, _ = apply(from_proto(proto), ReadMatmulNbits())
    assert sorted(ops(read)) == ["FakeQuantize", "MatMul", "MatMul"]


def test_accuracy_level_is_noted() -> None:
    _, trace = apply(nbits(accuracy_level=4)[0], ReadMatmulNbits())
    assert any("accuracy_level 4" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"zero": "half"}, "is not an integer"),
        ({"bits": 4, "weight_prepacked": 1}, "one kind of GPU"),
    ],
)
def test_what_cannot_be_read_stays_with_the_reason(options: dict[str, Any], why: str) -> None:
    read, trace = apply(nbits(**options)[0], ReadMatmulNbits())
    assert why in reasons(trace)
    assert read.nodes(MATMUL)


def test_other_widths_and_group_indices_stay() -> None:
    model, _ = nbits()
    model.nodes(MATMUL)[0].attrs["bits"] = 3
    _, trace = apply(model, ReadMatmulNbits())
    assert "3 bits" in reasons(trace)
    proto = nbits()[0].to_proto()
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros(48, np.int32), "g"))
    proto.graph.node[0].input.append("g")
    _, trace = apply(from_proto(proto), ReadMatmulNbits())
    assert "g_idx" in reasons(trace)
    proto = nbits()[0].to_proto()
    del proto.graph.initializer[0]
    proto.graph.input.append(INFO("B", TensorProto.UINT8, [6, 3, 8]))
    _, trace = apply(from_proto(proto), ReadMatmulNbits())
    assert "weight 'B' is computed at run time" in reasons(trace)


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [("K", 64, "weight 'B' has shape"), ("N", 0, "attribute N is 0"), ("block_size", 0, "block")],
)
def test_broken_files_are_an_error_that_names_the_node(name: str, value: int, word: str) -> None:
    model, _ = nbits()
    model.nodes(MATMUL)[0].attrs[name] = value
    with pytest.raises(QParamsError, match=f"'node'.*{word}"):
        apply(model, ReadMatmulNbits())


def test_a_scale_that_is_no_number_is_an_error() -> None:
    proto = nbits()[0].to_proto()
    scale = next(t for t in proto.graph.initializer if t.name == "s")
    values = np.full(numpy_helper.to_array(scale).shape, np.nan, np.float32)
    scale.CopyFrom(numpy_helper.from_array(values, "s"))
    with pytest.raises(QParamsError, match=r"'node'.*nan"):
        apply(from_proto(proto), ReadMatmulNbits())


@pytest.mark.parametrize(
    ("entries", "kind", "lo"),
    [
        ({QUANT_TYPE: "int4", QUANT_MIN: "-8", QUANT_MAX: "7"}, "int4", -8),
        ({QUANT_TYPE: "int4", QUANT_MIN: "-7", QUANT_MAX: "7"}, "uint4", 0),  # -8 is used
        ({QUANT_TYPE: "int8", QUANT_MIN: "-8", QUANT_MAX: "7"}, "uint4", 0),
        ({QUANT_TYPE: "int4", QUANT_MIN: "a", QUANT_MAX: "7"}, "uint4", 0),
        ({QUANT_TYPE: "int4"}, "uint4", 0),
    ],
)
def test_metadata_counts_where_it_fits_the_codes(
    entries: dict[str, str], kind: str, lo: int
) -> None:
    model, weight = nbits()
    add_metadata(model.nodes(MATMUL)[0], entries)
    read, _ = apply(model, ReadMatmulNbits())
    params = params_of(quantizer(read))
    assert (params.qtype.name, params.lo) == (kind, lo)
    np.testing.assert_array_equal(array(quantizer(read).inputs[0]), weight.astype(np.float32))


# -- Gather -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["int4", "uint4", "uint8 of 4", "uint8 of 8"])
@pytest.mark.parametrize("zero", [False, True])
def test_gather(form: str, zero: bool) -> None:
    random = np.random.default_rng(1)
    bits = 8 if form.endswith("8") else 4
    low = -8 if form == "int4" else 0
    codes = random.integers(low, low + (1 << bits), (5, 32))
    zeros = random.integers(low, low + (1 << bits), (5, 2))
    if form.startswith("uint8"):
        stored, stored_zeros = pack(codes, bits), pack(zeros, bits)
    else:
        kind = ml_dtypes.int4 if form == "int4" else ml_dtypes.uint4
        stored, stored_zeros = codes.astype(kind), zeros.astype(kind)
    scale = random.uniform(0.01, 0.02, (5, 2)).astype(np.float32)
    tensors = {"w": stored, "i": np.int64([3, 0, 3]), "s": scale}
    if zero:
        tensors["z"] = stored_zeros
    attrs = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    attrs |= {"bits": bits} if form.startswith("uint8") else {}
    model = model_of("GatherBlockQuantized", dict(tensors), [], **attrs)
    read, _ = apply(model, ReadMatmulNbits())
    assert ops(read) == ["FakeQuantize", "Gather"]
    assert bit_equal(run(read), run(model))


def test_gather_of_small_floats_stays() -> None:
    table = np.ones((4, 16), ml_dtypes.float8_e4m3fn)
    tensors = {"w": table, "i": np.int64([1]), "s": np.ones((4, 1), np.float32)}
    model = model_of("GatherBlockQuantized", dict(tensors), [], block_size=16)
    _, trace = apply(model, ReadMatmulNbits())
    assert "float8_e4m3fn" in reasons(trace)


# -- whole models -----------------------------------------------------------------------------


def test_zoo_computes_the_same() -> None:
    proto = ZOO["matmul_nbits"]()
    read, trace = apply(from_proto(proto), ReadMatmulNbits())
    assert (len(trace.rewrites), trace.skips) == (4, [])
    feeds = inputs(proto)
    want = sessions.reference(proto).run(feeds)
    for name, value in sessions.reference(read).run(feeds).items():
        assert np.abs(value - want[name]).max() <= 1e-6 * np.abs(want[name]).max()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.sampled_from([2, 4, 8]),
    st.integers(1, 70),
    st.integers(1, 5),
    st.sampled_from([16, 32, 64]),
    st.sampled_from(["", "packed", "float"]),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_random_weights_are_exact(
    bits: int, count: int, columns: int, block: int, zero: str, signs: bool, seed: int
) -> None:
    model, weight = nbits(bits, count, columns, block, zero=zero, signs=signs, seed=seed)
    read, _ = apply(model, ReadMatmulNbits())
    node = quantizer(read)
    real = array(node.inputs[0])
    np.testing.assert_array_equal(real, weight.astype(np.float32))
    np.testing.assert_array_equal(params_of(node).fake(real), real)


@pytest.mark.skipif(not FIXTURES.exists(), reason="no models of other tools beside the repository")
@pytest.mark.parametrize("kind", ["int4", "int4-asym", "int8"])
def test_files_of_onnxruntime(kind: str) -> None:
    name = f"A2/ort-matmulnbits-{kind}"
    source = fixture(name)
    read, trace = apply(source, ReadMatmulNbits())
    assert (len(trace.rewrites), trace.skips) == (7, [])
    written, _ = apply(read, ToQdq())
    for x in fixture_inputs(name):
        want = first_output(source, x)
        have = first_output(read, x)
        assert np.abs(have - want).max() <= 1e-6 * np.abs(want).max()
        assert bit_equal([first_output(written, x)], [have])
