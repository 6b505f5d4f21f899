"""onnxruntime's own graph at each level."""

from __future__ import annotations

from collections import Counter

import pytest

from onnxq.errors import OnnxqError
from onnxq.running.optimizer import Level, optimize
from tests.models.zoo import ZOO
from tests.models.zoo_build import Build


@pytest.mark.parametrize(
    ("level", "conv", "kernel"), [("none", 1, 0), ("basic", 1, 0), ("extended", 0, 1)]
)
def test_integer_operators_come_at_the_last_level(level: Level, conv: int, kernel: int) -> None:
    b = Build(17)
    x = b.qdq(b.input("x", [1, 4, 6, 6]), 0.1, 0, 3)  # int8, which becomes uint8 on every CPU
    y = b.op("Conv", x, b.stored(b.weight_values(4, 4, 3, 3), 0.01))
    made = optimize(b.model(b.qdq(y, 0.1, 0, 3)), level)
    ops = Counter(node.op_type for node in made.graph.node)
    assert (ops["Conv"], ops["QLinearConv"]) == (conv, kernel)


def test_why_there_is_no_graph() -> None:
    proto = ZOO["qdq_float8"]()
    assert optimize(proto, "basic").graph.node
    with pytest.raises(OnnxqError, match="float8"):
        optimize(proto, "extended")
