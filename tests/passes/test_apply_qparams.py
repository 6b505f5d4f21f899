from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.errors import LoadError, PassError, QParamsError
from onnxq.graph import Model, from_proto, load, save
from onnxq.pass_ import Trace
from onnxq.pipeline import Pipeline
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import GRAPH_OUTPUT, QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from passes.apply_qparams import ApplyQParams
from passes.collect_qparams import CollectQParams
from passes.read_qdq import ReadQdq
from passes.remove_fake_quant import RemoveFakeQuant
from tests.checks.work import assert_linear
from tests.models.build import apply, ops, parse, quantize, reasons, tensor
from tests.models.canonical import (
    Canonical,
    assert_same_outputs,
    canonical_models,
    expose,
    grid,
    put,
)
from tests.models.zoo import QDQ, ZOO

FORK = """g (float[2,3] x) => (float[2,3] y, float[2,3] z)
   { a = Relu(x)  b = Sigmoid(a)  y = Add(a, b)  z = Neg(a) }"""


def undone(model: Model) -> tuple[Model, Model, Model]:
    """The model with its table, without quantizers, and with them put back."""
    collected, _ = apply(model, CollectQParams())
    clean, _ = apply(collected, RemoveFakeQuant())
    back, _ = apply(clean, ApplyQParams())
    return collected, clean, back


def assert_inverse(model: Model) -> None:
    collected, clean, back = undone(model)
    assert not clean.nodes(FAKE_QUANTIZE)
    count = len(collected.qparams.of(Role.ACTIVATION, Role.WEIGHT))
    assert len(back.nodes(FAKE_QUANTIZE)) == count
    again, trace = apply(back, CollectQParams())
    assert not trace.rewrites
    assert again.qparams.rows == collected.qparams.rows
    assert_same_outputs(model, back)
    _, trace = apply(back, ApplyQParams())
    assert not trace.rewrites
    assert len(trace.skips) == count
    # The same through files.
    read = from_proto(back.to_proto())
    fresh, _ = apply(read, CollectQParams())
    assert fresh.qparams.rows == collected.qparams.rows


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(canonical_models())
def test_collect_and_remove_are_undone(canonical: Canonical) -> None:
    assert_inverse(canonical.model)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(canonical_models())
def test_what_is_left_without_quantizers_is_the_float_graph(canonical: Canonical) -> None:
    _, clean, _ = undone(canonical.model)
    added = len(clean.graph.outputs) - len(canonical.proto.graph.output)
    clean.graph.outputs = clean.graph.outputs[: len(clean.graph.outputs) - added]
    assert_same_outputs(from_proto(canonical.proto), clean)


@pytest.mark.parametrize("name", sorted(QDQ))
def test_quantized_networks_are_taken_apart_and_put_together(name: str) -> None:
    model, _ = apply(from_proto(ZOO[name]()), ReadQdq())
    # Written once: rows come in the order of nodes, and new nodes are put in order by writing.
    assert_inverse(from_proto(model.to_proto()))


def test_each_reader_gets_its_own_grid() -> None:
    model = parse(FORK)
    put(model, tensor(model, "a"), grid("a", 0), [Reader("b", 0)])
    put(model, tensor(model, "a"), grid("a", 2), [Reader("y", 0), Reader("z", 0)])
    assert_inverse(model)


def test_requantization_for_some_readers() -> None:
    model = parse(FORK)
    first = put(model, tensor(model, "a"), grid("a", 5))
    put(model, first, grid("a", 4), [Reader("y", 0)])
    collected, _, _ = undone(model)
    assert [(r.tensor, r.readers) for r in collected.qparams] == [
        ("a", None),
        ("a", (Reader("y", 0),)),
    ]
    assert_inverse(model)


def test_two_quantized_outputs_of_one_tensor() -> None:
    """One output gives the tensor its name, the other becomes an Identity of it."""
    model = parse(FORK)
    for number in (0, 2):
        made = put(model, tensor(model, "a"), grid("a", number), [Reader("b", 0)])
        expose(model, made)
    assert_inverse(model)


def test_quantized_output_that_is_also_read() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = Relu(x) z = Neg(y) }")
    put(model, tensor(model, "y"), grid("y", 3), [GRAPH_OUTPUT])
    assert_inverse(model)


@pytest.mark.parametrize("inner", ["Relu(x)", "Relu(w)"])
def test_quantized_inputs_and_constants_that_leave_the_graph(inner: str) -> None:
    model = parse(
        f"g (float[3] x) => (float[3] y) <float[3] w = {{1, -2, 0.13}}> {{ y = {inner} }}"
    )
    source = tensor(model, inner[5])
    made = put(model, source, grid("x", 1))
    expose(model, made)
    assert_inverse(model)


def body(inner: str) -> Model:
    return parse(
        f"""g (bool c, float[2,3] x) => (float[2,3] y) {{
           a = Relu(x)
           y = If (c) <then_branch = t () => (float[2,3] r) {{ {inner} }},
                       else_branch = e () => (float[2,3] r) {{ {inner} }}> }}"""
    )


@pytest.mark.parametrize("name", ["a", "s", "r"])
def test_bodies_that_use_the_same_names(name: str) -> None:
    model = body("s = Sigmoid(a) r = Neg(s)")
    twins = [t for node in model.nodes() for t in node.outputs if t.name == name]
    for number, found in enumerate(twins):
        put(model, found, grid(name, number))
    assert len(twins) == (1 if name == "a" else 2)
    assert_inverse(model)


def test_quantizer_inside_a_body_on_an_outer_tensor() -> None:
    """The table cannot say where a quantizer stands: it comes back beside the tensor."""
    model = body("r = Neg(a)")
    for node in model.nodes("Neg"):
        outer = tensor(model, "a")
        put(model, outer, grid("a"), [Reader("r", 0)])
        made = model.nodes(FAKE_QUANTIZE)[0]
        assert made.owner is model.graph
        made.owner.nodes[:] = [n for n in made.owner.nodes if n is not made]
        made.owner = node.owner
        node.owner.nodes.append(made)
        break
    # Only the reader in the same body may use it.
    for node in model.nodes("Neg")[1:]:
        node.inputs[0] = tensor(model, "a")
    assert_inverse(model)


@pytest.mark.parametrize("typed", [True, False])
def test_float16_keeps_float16_scales(typed: bool) -> None:
    declared = "<float16[2,3] a>" if typed else ""
    model = parse(
        f"g (float16[2,3] x) => (float16[2,3] y) {declared} {{ a = Relu(x) y = Neg(a) }}", 21, 10
    )
    table = QParamTable([QParams("a", qtype("int8"), np.float16(0.1), 0)])
    model.qparams = table
    applied, _ = apply(model, ApplyQParams())
    assert applied.nodes(FAKE_QUANTIZE)[0].inputs[1].dtype == np.float16
    assert_inverse(applied)


def test_bias_rows_stay_rows() -> None:
    model = parse(FORK)
    bias = QParams("bias", qtype("int32"), np.float32(1e-4), 0, role=Role.BIAS)
    model.qparams = QParamTable([grid("a"), bias])
    applied, trace = apply(model, ApplyQParams())
    assert len(trace.rewrites) == len(applied.nodes(FAKE_QUANTIZE)) == 1
    assert applied.qparams.rows == [grid("a"), bias]


def test_table_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ranges of a.json"
    file.write_text(QParamTable([grid("a", 2)]).dumps(), encoding="utf-8")
    step = Pipeline.parse(f"apply-qparams{{file='{file}'}}")
    result = step.run(parse(FORK)).model
    assert result.qparams.rows == [grid("a", 2)]
    assert ops(result).count("FakeQuantize") == 1
    # A table survives the model's own file.
    save(result, tmp_path / "m.onnx")
    kept, _ = apply(load(tmp_path / "m.onnx"), CollectQParams())
    assert kept.qparams.rows == [grid("a", 2)]


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, LoadError, "table.json: no such file"),
        (b"\xff\xfe\x00", LoadError, "table.json: not a text file"),
        (b"{", QParamsError, "table.json: not an onnxq quantization table: line 1 column 2"),
        (b'{"schema": "other"}', QParamsError, "table.json: this JSON is not an onnxq"),
    ],
)
def test_bad_file(
    tmp_path: Path, content: bytes | None, error: type[Exception], words: str
) -> None:
    file = tmp_path / "table.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(error, match=words):
        apply(parse(FORK), ApplyQParams(str(file)))


def test_unknown_tensors_are_listed_with_what_may_be_meant() -> None:
    model = parse("g (float[2] x) => (float[2] y) { conv1_out = Relu(x) y = Neg(conv1_out) }")
    model.qparams = QParamTable([grid("conv_out1"), grid("x"), grid("elsewhere")])
    with pytest.raises(PassError, match="'conv_out1', 'elsewhere'") as caught:
        apply(model, ApplyQParams())
    assert "'conv_out1' may mean 'conv1_out'" in caught.value.fix
    many = parse(FORK)
    many.qparams = QParamTable([grid(f"unrelated{i:02}") for i in range(14)])
    with pytest.raises(PassError, match="and 4 more"):
        apply(many, ApplyQParams())


@pytest.mark.parametrize("reader", [Reader("nowhere", 0), Reader("y", 1), GRAPH_OUTPUT])
def test_reader_that_does_not_read(reader: Reader) -> None:
    model = parse(FORK)
    model.qparams = QParamTable([grid("a").with_(readers=(Reader("b", 0), reader))])
    with pytest.raises(PassError, match="row for tensor 'a' names"):
        apply(model, ApplyQParams())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scale": np.ones(4), "axis": 0}, "'w': 4 scales for 2 channels"),
        ({"scale": np.ones(2), "axis": 2}, "'w': axis 2 does not exist"),
        ({"scale": np.ones((2, 1)), "axis": 1, "block": 2}, "'w': blocks of 2 along axis 1"),
    ],
)
def test_row_that_does_not_fit_the_weight(fields: dict[str, object], words: str) -> None:
    model = parse(
        """g (float[N,2] x) => (float[N,3] y) <float[2,3] w = {1, 2, 3, 4, 5, 6}>
           { y = MatMul(x, w) }"""
    )
    row = QParams("w", qtype("int8"), zero_point=np.int64(0), **fields)  # type: ignore[arg-type]
    model.qparams = QParamTable([row])
    with pytest.raises(QParamsError, match=words):
        apply(model, ApplyQParams())
    assert not model.nodes(FAKE_QUANTIZE)


def test_dynamic_shapes_are_not_guessed() -> None:
    model = parse("g (float[N,C] x) => (float[N,C] y) { y = Relu(x) }")
    model.qparams = QParamTable([QParams("x", qtype("int8"), np.ones(5), np.zeros(5), axis=1)])
    applied, _ = apply(model, ApplyQParams())
    assert len(applied.nodes(FAKE_QUANTIZE)) == 1


def test_integer_tensors_are_refused() -> None:
    model = parse("g (int64[2] i) => (int64[2] j) { j = Neg(i) }")
    model.qparams = QParamTable([grid("i")])
    with pytest.raises(PassError, match="'i' is int64"):
        apply(model, ApplyQParams())


def test_name_that_means_two_tensors() -> None:
    model = body("s = Sigmoid(a) r = Neg(s)")
    model.qparams = QParamTable([grid("s")])
    with pytest.raises(PassError, match="'s' names 2 tensors"):
        apply(model, ApplyQParams())


def test_an_input_that_is_an_output_is_declined() -> None:
    model = parse("g (float[2] x) => (float[2] x, float[2] y) { y = Relu(x) }")
    model.qparams = QParamTable([grid("x")])
    applied, trace = apply(model, ApplyQParams())
    assert not applied.nodes(FAKE_QUANTIZE)
    assert "an input and an output" in reasons(trace)


def test_rows_already_there_are_found_behind_other_quantizers() -> None:
    model = quantize(parse(FORK), "a")
    model.qparams = QParamTable([grid("a", 2), grid("a", 3)])
    applied, trace = apply(model, ApplyQParams())
    assert len(trace.rewrites) == 2
    assert len(applied.nodes(FAKE_QUANTIZE)) == 3
    _, trace = apply(applied, ApplyQParams())
    assert not trace.rewrites
    assert len(trace.skips) == 2


def test_one_quantizer_stands_for_one_row() -> None:
    model = parse(FORK)
    put(model, tensor(model, "a"), grid("a", 2))
    model.qparams = QParamTable([grid("a", 2), grid("a", 2)])
    applied, trace = apply(model, ApplyQParams())
    assert len(trace.rewrites) == len(trace.skips) == 1
    assert_inverse(applied)


def chain(length: int) -> Model:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(length)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("t0", f"t{length}")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    opset = helper.make_opsetid("", 17)
    model = from_proto(helper.make_model(graph, opset_imports=[opset], ir_version=8))
    model.qparams = QParamTable([grid(f"t{i}") for i in range(length)])
    return model


def test_work_grows_with_the_number_of_rows_alone() -> None:
    def prepare(length: int) -> Callable[[], object]:
        model = chain(length)
        return lambda: ApplyQParams().run(model, Trace("apply-qparams"))

    assert_linear(prepare, 100)
