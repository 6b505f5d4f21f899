from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.gs_objects import make_constant, make_node, make_variable

VALUES = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (make_variable("x"), gs.Variable("x")),
        (make_variable("x", np.float32, [1, "n"]), gs.Variable("x", np.float32, [1, "n"])),
        (
            make_variable("x", None, None, "sequence_type"),
            gs.Variable("x", None, None, "sequence_type"),
        ),
        (make_constant("c", VALUES), gs.Constant("c", VALUES)),
        (make_node("Relu", "n", {"a": 1}, [], []), gs.Node("Relu", "n", {"a": 1}, [], [])),
        (make_node("Q", "n", {}, [], [], "d"), gs.Node("Q", "n", {}, [], [], "d")),
    ],
)
def test_same_fields_as_the_constructors(mine: object, theirs: object) -> None:
    assert type(mine) is type(theirs)
    assert list(vars(mine)) == list(vars(theirs))
    for name, value in vars(theirs).items():
        assert type(vars(mine)[name]) is type(value)
        if isinstance(value, np.ndarray):
            assert vars(mine)[name] is value
        elif not isinstance(value, gs.util.misc.SynchronizedList):
            assert vars(mine)[name] == value


def test_links_stay_in_step() -> None:
    x, y, z = make_variable("x"), make_variable("y"), make_variable("z")
    node = make_node("Add", "n", {}, [x, x], [y])
    assert [id(n) for n in x.outputs] == [id(node), id(node)]
    assert y.inputs[0] is node
    node.inputs[1] = z
    assert len(x.outputs) == 1
    assert z.outputs[0] is node
    node.inputs.append(x)
    assert len(x.outputs) == 2
    y.inputs.clear()
    assert not node.outputs
