from __future__ import annotations

import numpy as np
import pytest

from onnxq.opsets.float_types import FloatTypes
from tests.models.build import parse, tensor


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("a = Relu(x)", np.float16),
        ("i = Shape(x) a = Reshape(x, i)", np.float16),
        ("i = Shape(x) c = Cast <to = 1> (i) a = Neg(c)", np.float32),
        ("i = Shape(x) c = Cast <to = 10> (i) a = Neg(c)", np.float16),
        ("c = Cast <to = 1> (x) a = Neg(c)", np.float32),
        ("b = Neg(x) c = Add(b, b) d = Mul(c, b) a = Add(d, c)", np.float16),
        ("a = RandomNormal <shape = [2], dtype = 10> ()", np.float16),
        ("a = RandomNormal <shape = [2]> ()", np.float32),
        ("a = If (f) <then_branch = t () => (r) { r = Neg(x) }, "
         "else_branch = e () => (q) { q = Neg(x) }>", np.float16),
    ],
)  # fmt: skip
def test_type_found_upstream(body: str, want: type) -> None:
    text = f"g (bool f, float16[2] x) => (y) {{ {body} y = Abs(a) }}"
    model = parse(text, 21, 10)
    types = FloatTypes()
    assert types.of(tensor(model, "a")) == want
    assert types.of(tensor(model, "y")) == want
    assert types.of(tensor(model, "a")) == want


def test_declared_type_wins() -> None:
    model = parse("g (float16[2] x) => (float[2] y) { y = Bar(x) }")
    assert FloatTypes().of(tensor(model, "y")) == np.float32


def test_long_untyped_chain_is_walked_once() -> None:
    body = " ".join(f"t{i + 1} = Neg(t{i})" for i in range(3000))
    model = parse(f"g (float16[2] t0) => (y) {{ {body} y = Neg(t3000) }}", 21, 10)
    types = FloatTypes()
    for node in reversed(model.nodes()):
        assert types.of(node.outputs[0]) == np.float16
