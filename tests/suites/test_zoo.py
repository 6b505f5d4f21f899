"""The zoo and the graph strategies give models that are valid, run, and are what their tags say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper

from tests.checks.plain_run import run_plain
from tests.models import zoo
from tests.models.strategies import RANGES, QArrays, graphs, qdq_graphs, qparams_arrays
from tests.models.zoo_build import ir_for

every_model = pytest.mark.parametrize("name", sorted(zoo.ZOO))
some_examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def run(proto: onnx.ModelProto, seed: int = 0) -> list[npt.NDArray[np.generic]]:
    return run_plain(proto, zoo.inputs(proto, seed))


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def ops(proto: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in all_nodes(proto.graph)}


def assert_finite(outputs: list[npt.NDArray[np.generic]]) -> None:
    for output in outputs:
        assert output.size
        if output.dtype.kind == "f":
            assert np.isfinite(output).all()


@every_model
def test_model_is_valid_and_small(name: str) -> None:
    proto = zoo.ZOO[name]()
    onnx.checker.check_model(proto, full_check=True)
    assert len(list(all_nodes(proto.graph))) < 60
    assert proto.ir_version <= 13
    assert all(entry.version <= 26 for entry in proto.opset_import if not entry.domain)


@every_model
def test_model_runs_and_is_finite(name: str) -> None:
    """Two seeds, which give If models both of their branches."""
    proto = zoo.ZOO[name]()
    for seed in (0, 1):
        assert_finite(run(proto, seed))


@every_model
def test_model_is_the_same_every_time(name: str) -> None:
    make = zoo.ZOO[name]
    first, second = make(), make()
    assert first is not second
    assert first.SerializeToString() == second.SerializeToString()
    assert make.__doc__


@every_model
def test_tags_say_what_the_model_is(name: str) -> None:
    proto = zoo.ZOO[name]()
    found = ops(proto)
    quantized = bool(found & {"QuantizeLinear", "DequantizeLinear"})
    plain = not quantized and name not in zoo.DIALECTS
    assert (name in zoo.QDQ, name in zoo.FLOAT) == (quantized, plain)
    assert (name in zoo.BATCH_NORM) == ("BatchNormalization" in found)
    assert (name in zoo.SUBGRAPHS) == bool(found & {"If", "Loop"})
    types = {value.type.tensor_type.elem_type for value in proto.graph.input}
    assert (name in zoo.HALF) == (TensorProto.FLOAT16 in types)


@pytest.mark.parametrize("name", sorted(zoo.CNN))
def test_cnn_convolutions_can_all_run_in_integers(name: str) -> None:
    proto = zoo.ZOO[name]()
    makers = {out: node for node in proto.graph.node for out in node.output}

    def readers(value: str) -> list[onnx.NodeProto]:
        return [node for node in proto.graph.node if value in node.input]

    convolutions = [node for node in proto.graph.node if node.op_type == "Conv"]
    assert convolutions
    for conv in convolutions:
        assert [makers[value].op_type for value in conv.input[:2]] == ["DequantizeLinear"] * 2
        after = readers(conv.output[0])
        if [node.op_type for node in after] == ["Relu"]:
            after = readers(after[0].output[0])
        assert [node.op_type for node in after] == ["QuantizeLinear"]


def test_every_opset_generation_is_there() -> None:
    opsets = {
        entry.version
        for make in zoo.ZOO.values()
        for entry in make().opset_import
        if not entry.domain
    }
    assert opsets >= {8, 9, 10, 11, 12, 13, 17, 21}


def test_zoo_is_large() -> None:
    assert len(zoo.FLOAT) >= 45
    assert len(zoo.QDQ) >= 25
    assert len(zoo.CNN) >= 10
    assert set(zoo.ZOO) == zoo.FLOAT | zoo.QDQ | zoo.DIALECTS


def test_both_branches_of_if_are_fed() -> None:
    for name in zoo.SUBGRAPHS:
        proto = zoo.ZOO[name]()
        if "If" in ops(proto):
            assert {bool(zoo.inputs(proto, seed)["flag"]) for seed in (0, 1)} == {True, False}


def test_inputs_fill_symbols_alike_and_skip_defaults() -> None:
    dims = [None, "T", "T", 3]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [],
        "feeds",
        [value("x", TensorProto.FLOAT, dims), value("n", TensorProto.INT64, ["T"])],
        [],
        initializer=[],
    )
    feeds = zoo.inputs(helper.make_model(graph))
    assert feeds["x"].shape == (2, 6, 6, 3)
    assert feeds["n"].shape == (6,)
    assert set(zoo.inputs(zoo.ZOO["initializer_is_input_ir3"]())) == {"x"}


@some_examples
@given(graphs())
def test_random_graphs_are_valid_and_run(proto: onnx.ModelProto) -> None:
    onnx.checker.check_model(proto, full_check=True)
    assert_finite(run(proto))
    assert not ops(proto) & {"QuantizeLinear", "DequantizeLinear"}


@some_examples
@given(qdq_graphs())
def test_random_qdq_graphs_are_valid_and_run(proto: onnx.ModelProto) -> None:
    onnx.checker.check_model(proto, full_check=True)
    assert_finite(run(proto))


@some_examples
@given(qparams_arrays())
def test_random_arrays_quantize_as_onnxruntime_does(case: QArrays) -> None:
    """Q → DQ over the full range of the type equals the formula in float32."""
    x, scale, zero_point, lo, hi, axis = case
    assert (lo, hi) in RANGES[zero_point.dtype.type]
    assert ((zero_point >= lo) & (zero_point <= hi)).all()
    assert scale.dtype == np.float32
    assert (scale > 0).all()
    attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
    proto = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
                helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
            ],
            "qdq",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
            initializer=[
                onnx.numpy_helper.from_array(scale, "s"),
                onnx.numpy_helper.from_array(zero_point, "z"),
            ],
        ),
        ir_version=ir_for(21),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"x": x})
    view = () if axis is None else [-1 if i == axis else 1 for i in range(x.ndim)]
    step, zero = scale.reshape(view), zero_point.reshape(view).astype(np.float32)
    limits = np.iinfo(zero_point.dtype)
    with np.errstate(over="ignore"):
        codes = np.clip(np.rint(x / step) + zero, limits.min, limits.max)
    np.testing.assert_array_equal(actual, (codes - zero) * step)
