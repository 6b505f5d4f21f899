"""Einsum as MatMul: the same numbers, whatever the letters; and what is no product stays."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxq.graph import Model, from_proto
from onnxq.running.sessions import session
from onnxq.workflows.quantize import quantize
from passes.lower_einsum import LowerEinsum
from tests.models.build import apply, reasons

SIZES = {"b": 2, "h": 3, "i": 4, "j": 5, "k": 6, "l": 7}


def einsum(
    equation: str, *, weight: int | None = None, kind: np.dtype | type = np.float32
) -> Model:
    """The node alone; one factor may be a constant."""
    first, second = (tuple(SIZES[x] for x in part) for part in equation.split("->")[0].split(","))
    rng = np.random.default_rng(0)
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    names, shapes = ["x", "y"], [first, second]
    given = [i for i in range(2) if i != weight]
    graph = helper.make_graph(
        [helper.make_node("Einsum", names, ["z"], name="e", equation=equation)],
        "g",
        [helper.make_tensor_value_info(names[i], dtype, shapes[i]) for i in given],
        [helper.make_tensor_value_info("z", dtype, None)],
        [
            numpy_helper.from_array(rng.normal(size=shapes[i]).astype(kind), names[i])
            for i in range(2)
            if i == weight
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    made = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opset, ir_version=8)
    )
    return from_proto(made)


def feed(model: Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {t.name: rng.normal(size=t.shape).astype(t.dtype) for t in model.graph.inputs}


def same(model: Model, made: Model) -> None:
    values = feed(model)
    was, now = (session(each, "reference").run(values)["z"] for each in (model, made))
    np.testing.assert_allclose(now, was, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([("bh", "i"), ("b", "i"), ("", "i"), ("", "hi"), ("", "bhi")]),
    st.randoms(use_true_random=False),
)
def test_products_in_any_order_of_axes(kinds: tuple[str, str], random: Random) -> None:
    batch, rows = kinds
    parts = [list(batch + rows + "k"), list(batch + "kj"), list(batch + rows + "j")]
    for part in parts:
        random.shuffle(part)
    a, b, c = ("".join(part) for part in parts)
    model = einsum(f"{a},{b}->{c}")
    made, trace = apply(model, LowerEinsum())
    assert len(trace.rewrites) == 1
    assert {n.op for n in made.nodes()} <= {"MatMul", "Transpose"}
    assert sum(n.op == "MatMul" for n in made.nodes()) == 1
    same(model, made)


@pytest.mark.parametrize(
    ("equation", "count"), [("ik,kj->ij", 0), ("bik,bkj->bij", 0), ("bhik,bhjk->bhij", 1)]
)
def test_no_transpose_without_need(equation: str, count: int) -> None:
    made, _ = apply(einsum(equation), LowerEinsum())
    assert len(made.nodes("Transpose")) == count


def test_an_equation_without_a_result() -> None:
    model = einsum("ik,kj")
    made, _ = apply(model, LowerEinsum())
    same(model, made)


@pytest.mark.parametrize(
    ("equation", "why"),
    [
        ("ij,ij->ij", "no product"),
        ("ijk,jkl->il", "no product"),
        ("ijh,jk->ik", "no product"),
        ("i,i->", "no product"),
        ("ii,ij->ij", "twice"),
    ],
)
def test_what_stays(equation: str, why: str) -> None:
    made, trace = apply(einsum(equation), LowerEinsum())
    assert why in reasons(trace)
    assert [n.op for n in made.nodes()] == ["Einsum"]


def test_integers_stay() -> None:
    _, trace = apply(einsum("ik,kj->ij", kind=np.int32), LowerEinsum())
    assert "floats" in reasons(trace)


def test_a_weight_comes_second_and_is_quantized() -> None:
    model = einsum("jk,bik->bij", weight=0)
    made, _ = apply(model, LowerEinsum())
    same(model, made)
    (product,) = made.nodes("MatMul")
    assert product.inputs[0].name == "y"
    done = quantize(
        model, "tensorrt", [feed(model) for _ in range(4)], settings=[["MatMul", {"bits": 8}]]
    )
    assert done.proven
    assert "x" in {row.tensor.removesuffix(".turned") for row in done.table}
