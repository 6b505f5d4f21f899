from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx_graphsurgeon.util.misc import SynchronizedList

from onnxq.storage.gs_objects import make_constant, make_node, make_variable

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
    assert type(mine).__name__ == type(theirs).__name__
    assert isinstance(mine, type(theirs))
    ours = {"owner", "source", "overridable", "heirs", "removed"}  # what onnxq attaches
    slots = {s for kind in type(mine).__mro__ for s in getattr(kind, "__slots__", ())}
    assert not vars(theirs).keys() - {name for name in dir(mine) if hasattr(mine, name)}
    assert slots <= {*vars(theirs), *ours, "_values", "dtype", "shape"}
    for name, value in vars(theirs).items():
        made = getattr(mine, name)
        if isinstance(value, SynchronizedList):
            assert isinstance(made, SynchronizedList)
            assert made.field_name == value.field_name
            assert made.parent_obj is mine
            assert not vars(made)  # a slot holds the parent, the class the name of the field
            continue
        assert type(made) is type(value)
        assert made is value if isinstance(value, np.ndarray) else made == value


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


def test_a_variable_becomes_a_constant_and_back() -> None:
    x, y = make_variable("x", np.float32, [2]), make_variable("y")
    node = make_node("Relu", "n", {}, [x], [y])
    constant = x.to_constant(VALUES)
    assert constant is x
    assert isinstance(node.inputs[0], gs.Constant)
    assert x.values is VALUES
    assert (x.shape, x.dtype) == ((2,), np.float32)
    x.to_variable(np.float16, [3])
    assert isinstance(x, gs.Variable)
    assert not isinstance(x, gs.Constant)
    assert (x.shape, x.dtype, x.outputs[0]) == ([3], np.float16, node)
