from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import PassError
from onnxq.graph import Model
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import GRAPH_OUTPUT, QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant
from tests.models.build import apply, parse, quantize, tensor, weight
from tests.models.canonical import assert_same_outputs, expose, grid, put

CONV = """g (float[1,2,4,4] x) => (float[1,3,4,4] y) <float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}>
   { c = Conv(x, w)  y = Relu(c) }"""
BIAS = QParams("bias", qtype("int32"), np.float32(1e-4), 0, role=Role.BIAS)


def rows(model: Model) -> list[tuple[str, str, tuple[Reader, ...] | None]]:
    collected, _ = apply(model, CollectQParams())
    assert_same_outputs(model, collected)
    return [(row.tensor, str(row.role), row.readers) for row in collected.qparams]


def test_rows_in_graph_order_with_roles() -> None:
    model = parse(CONV)
    for name in ("c", "x"):
        quantize(model, name, scale=np.float32(0.3))
    weight(model, "w", scale=np.float32([0.1, 0.2, 0.3]), zero_point=np.zeros(3), axis=0)
    assert rows(model) == [
        ("x", "activation", None),
        ("w", "weight", None),
        ("c", "activation", None),
    ]
    collected, trace = apply(model, CollectQParams())
    assert collected.qparams["w"].axis == 0
    np.testing.assert_array_equal(collected.qparams["w"].scale, np.float32([0.1, 0.2, 0.3]))
    assert trace.rewrites[1] == "'w': weight int8 -128..127, 3 scales"


def test_a_quantized_output_gives_the_tensor_its_name() -> None:
    model = quantize(parse(CONV), "y")
    assert model.nodes("Relu")[0].outputs[0].name == "y.raw"
    assert rows(model) == [("y", "activation", None)]
    clean, _ = apply(model, RemoveFakeQuant())
    assert clean.nodes("Relu")[0].outputs[0].name == "y"


def test_readers_are_named_as_in_the_float_graph() -> None:
    """Relu's result is called 'y.raw' while the output is quantized, and 'y' afterwards."""
    model = parse("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Neg(x) }")
    put(model, tensor(model, "x"), grid("x"), [Reader("y", 0)])
    quantize(model, "y")
    assert rows(model) == [
        ("x", "activation", (Reader("y", 0),)),
        ("y", "activation", None),
    ]


def test_output_quantized_and_read_in_float() -> None:
    model = parse("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Neg(y) }")
    put(model, tensor(model, "y"), grid("y"), [GRAPH_OUTPUT])
    assert rows(model) == [("y", "activation", (GRAPH_OUTPUT,))]


def test_quantized_input_that_leaves_the_graph() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    expose(model, put(model, tensor(model, "x"), grid("x"), [Reader("y", 0)]))
    assert rows(model) == [("x", "activation", None)]


def test_chain_is_rows_of_one_tensor_in_order() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    first = put(model, tensor(model, "x"), grid("x", 5))
    put(model, first, grid("x", 2))
    collected, _ = apply(model, CollectQParams())
    assert [(r.tensor, r.qtype.name) for r in collected.qparams] == [("x", "int16"), ("x", "uint8")]


def test_chained_weight_stays_a_weight() -> None:
    model = parse(CONV)
    first = put(model, tensor(model, "w"), grid("w", 5))
    put(model, first, grid("w", 4))
    assert [role for _, role, _ in rows(model)] == ["weight", "weight"]


def test_bias_rows_stay_and_others_are_replaced() -> None:
    model = quantize(parse(CONV), "x")
    model.qparams = QParamTable([BIAS, grid("c"), grid("x", 2)])
    collected, trace = apply(model, CollectQParams())
    assert [row.tensor for row in collected.qparams] == ["x", "bias"]
    assert len(trace.rewrites) == 1
    assert trace.notes == ["rows dropped, because the graph does not quantize these tensors: c"]
    again, trace = apply(collected, CollectQParams())
    assert not trace.rewrites
    assert not trace.notes
    assert again.qparams.rows == collected.qparams.rows


def test_table_survives_when_the_quantizers_are_gone() -> None:
    model = quantize(parse(CONV), "x")
    clean, _ = apply(model, CollectQParams(), RemoveFakeQuant())
    again, trace = apply(clean, CollectQParams())
    assert len(again.qparams) == 1
    assert "table of 1 rows is kept" in trace.notes[0]


def test_quantizer_that_nobody_reads_has_no_row() -> None:
    model = quantize(parse(CONV), "c")
    model.nodes("Relu")[0].inputs[0] = tensor(model, "c")
    model.nodes("FakeQuantize", "onnxq::FakeQuantize")[0].unread_at_load = True
    collected, trace = apply(model, CollectQParams())
    assert not collected.qparams.rows
    assert [skip.reason for skip in trace.skips] == ["its output is unused"]


def test_scale_computed_at_run_time() -> None:
    model = quantize(parse("g (float[2] x, float s) => (float[2] y) { y = Relu(x) }"), "x")
    node = model.nodes("onnxq::FakeQuantize")[0]
    node.inputs[1] = model.graph.inputs[1]
    with pytest.raises(PassError, match="'s' is computed at run time"):
        apply(model, CollectQParams())


def test_names_shared_by_bodies_become_unique() -> None:
    text = "{ s = Sigmoid(x) r = Neg(s) }"
    model = parse(
        f"""g (bool c, float[2] x) => (float[2] y) {{
            y = If (c) <then_branch = t () => (float[2] r) {text},
                        else_branch = e () => (float[2] r) {text}> }}"""
    )
    for found in [n.outputs[0] for n in model.nodes("Sigmoid")]:
        put(model, found, grid("s"))
    names = [tensor_name for tensor_name, _, _ in rows(model)]
    assert len(set(names)) == 2
    _, trace = apply(model, CollectQParams())
    assert any(note.startswith("'s' names several tensors") for note in trace.notes)
