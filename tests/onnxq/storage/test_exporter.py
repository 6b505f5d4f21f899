"""Constants come out in the type, shape and values they were given.

The tests named row_NN are the known faults of onnx-graphsurgeon 0.6.1, one each.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from onnx import (
    TensorProto,
    helper,
    numpy_helper,
)

from onnxq.edit import constant, new_node, set_input, variable
from onnxq.graph import from_proto
from onnxq.graph.constants import array
from tests.checks.plain_run import run_plain
from tests.checks.work import assert_linear
from tests.models.protos import chain, info, kept, make, node_of, one, text

# -- rows 1 and 2: constants of types numpy lacks ---------------------------------------------

SMALL = {
    "INT4": (ml_dtypes.int4, [-8, -1, 7]),
    "UINT4": (ml_dtypes.uint4, [0, 9, 15]),
    "INT2": (ml_dtypes.int2, [-2, 0, 1]),
    "UINT2": (ml_dtypes.uint2, [0, 2, 3]),
    "FLOAT4E2M1": (ml_dtypes.float4_e2m1fn, [-6.0, 0.5, 3.0]),
    "FLOAT8E4M3FN": (ml_dtypes.float8_e4m3fn, [-448.0, 0.25, 1.5]),
    "FLOAT8E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, [-240.0, 0.25, 1.5]),
    "FLOAT8E5M2": (ml_dtypes.float8_e5m2, [-57344.0, 0.25, 1.5]),
    "FLOAT8E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, [-57344.0, 0.25, 1.5]),
    "FLOAT8E8M0": (ml_dtypes.float8_e8m0fnu, [0.5, 1.0, 4.0]),
    "BFLOAT16": (ml_dtypes.bfloat16, [-(2.0**100), 0.25, 1.5]),
    "FLOAT16": (np.float16, [-65504.0, 0.25, 1.5]),
}


@pytest.mark.parametrize("kind", SMALL)
def test_row_01_new_constant_of_small_type(kind: str) -> None:
    dtype, numbers = SMALL[kind]
    model = one()
    value = np.array(numbers, np.float32).astype(dtype)
    set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
    (tensor,) = model.to_proto().graph.initializer
    assert tensor.data_type == TensorProto.DataType.Value(kind)
    assert numpy_helper.to_array(tensor).astype(np.float32).tolist() == numbers


@pytest.mark.parametrize("kind", SMALL)
def test_row_01_stored_constant_of_small_type_is_kept_and_read(kind: str) -> None:
    dtype, numbers = SMALL[kind]
    value = np.array(numbers, np.float32).astype(dtype)
    proto = make(
        [helper.make_node("Identity", ["c"], ["y"])],
        [],
        [info("y", [3], TensorProto.DataType.Value(kind))],
        initializer=[numpy_helper.from_array(value, "c")],
    )
    read = array(node_of(kept(proto), "Identity").inputs[0])
    assert read is not None
    assert read.dtype == dtype
    assert read.astype(np.float32).tolist() == numbers


def test_row_01_int4_weight_runs_in_onnxruntime() -> None:
    proto = make(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        opset=21,
        ir_version=10,
        initializer=[
            numpy_helper.from_array(np.zeros((2, 2), ml_dtypes.int4), "q"),
            numpy_helper.from_array(np.float32(0.5), "s"),
        ],
    )
    model = from_proto(proto)
    weight = np.array([[-8, 7], [3, -1]], np.float32)
    codes = constant(model, "codes", weight.astype(ml_dtypes.int4))
    set_input(node_of(model, "DequantizeLinear"), 0, codes)
    (y,) = run_plain(model.to_proto(), {"x": np.array([2, 4], np.float32)})
    assert y.tolist() == (np.array([2, 4]) @ weight * 0.5).tolist()


def test_row_02_float8_e4m3fnuz_keeps_type_and_values() -> None:
    model = one()
    numbers = [0.5, -2.0, 240.0]
    value = np.array(numbers, np.float32).astype(ml_dtypes.float8_e4m3fnuz)
    set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
    (tensor,) = model.to_proto().graph.initializer
    assert tensor.data_type == TensorProto.FLOAT8E4M3FNUZ
    assert numpy_helper.to_array(tensor).astype(np.float32).tolist() == numbers


# -- the other traps --------------------------------------------------------------------------


def test_trap_inserting_many_nodes_is_linear() -> None:
    def prepare(count: int) -> Callable[[], object]:
        model = from_proto(make(chain(count)))

        def insert_all() -> None:
            for node in model.nodes("Neg"):
                made = variable(model, "q", like=node.inputs[0])
                new_node(model, "Identity", [node.inputs[0]], [made], name="q")
                set_input(node, 0, made)
            assert len(model.to_proto().graph.node) == 2 * count

        return insert_all

    assert_linear(prepare, 100)


def test_trap_scalar_constant_stays_a_scalar() -> None:
    model = one()
    set_input(node_of(model, "Relu"), 0, constant(model, "s", np.float32(0.5)))
    assert list(model.to_proto().graph.initializer[0].dims) == []


def test_trap_value_float_is_float32() -> None:
    model = from_proto(text("g () => (float y) { y = Constant<value_float = 0.1>() }"))
    value = array(model.graph.outputs[0])
    assert value is not None
    assert value.dtype == np.float32


@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
def test_trap_new_constant_in_any_memory_layout(layout: str) -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    value = {"rows": base, "columns": np.asfortranarray(base), "strided": base[:, ::-2]}[layout]
    model = one()
    set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
    stored = numpy_helper.to_array(model.to_proto().graph.initializer[0])
    assert stored.tolist() == value.tolist()


def test_trap_string_constants() -> None:
    for value in (np.array(["a", "ü"], object), np.array(["a", "ü"])):
        model = one()
        set_input(node_of(model, "Relu"), 0, constant(model, "c", value))
        stored = model.to_proto().graph.initializer[0]
        assert stored.data_type == TensorProto.STRING
        assert [s.decode() for s in stored.string_data] == ["a", "ü"]
