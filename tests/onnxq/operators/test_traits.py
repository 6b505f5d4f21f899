"""Traits of operators, held to what the operators compute."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from onnxq.graph import Model
from onnxq.operators.traits import (
    KEEPS_SIGN,
    MOVES,
    NEVER_NEGATIVE,
    SEVERAL,
    moved_outputs,
    moves,
)
from tests.models.build import parse, run

X = np.random.default_rng(0).normal(0, 3, (1, 4, 4, 4)).astype(np.float32)
PADS = "p = Constant<value_ints = [0, 0, 1, 1, 0, 0, 1, 1]>()"
SIZES = "s = Constant<value_floats = [1., 1., 2., 2.]>()"
FORMS = {
    "AveragePool": "y = AveragePool <kernel_shape = [2, 2]> (x)",
    "DepthToSpace": "y = DepthToSpace <blocksize = 2> (x)",
    "Dropout": "y, mask = Dropout(x)",
    "Expand": "i = Constant<value_ints = [3, 4, 4, 4]>() y = Expand(x, i)",
    "Gather": "i = Constant<value_ints = [3, 0, 0]>() y = Gather <axis = 2> (x, i)",
    "GatherElements": """i = Constant<value_ints = [3, 0]>()
        j = Constant<value_ints = [1, 1, 1, 2]>() k = Reshape(i, j)
        y = GatherElements <axis = 3> (x, k)""",
    "GatherND": "i = Constant<value_ints = [0, 2]>() y = GatherND(x, i)",
    "MaxPool": "y, at = MaxPool <kernel_shape = [2, 2], pads = [1, 1, 0, 0]> (x)",
    "Pad": f"{PADS} y = Pad(x, p)",
    "ReduceSum": "i = Constant<value_ints = [1]>() y = ReduceSum(x, i)",
    "Reshape": "i = Constant<value_ints = [8, 8]>() y = Reshape(x, i)",
    "Resize": f"{SIZES} y = Resize(x, , s)",
    "Slice": """i = Constant<value_ints = [1]>() j = Constant<value_ints = [3]>()
        y = Slice(x, i, j, i)""",
    "SpaceToDepth": "y = SpaceToDepth <blocksize = 2> (x)",
    "Split": "y, z = Split <axis = 1> (x)",
    "Tile": "i = Constant<value_ints = [1, 1, 2, 3]>() y = Tile(x, i)",
    "Unsqueeze": "i = Constant<value_ints = [0]>() y = Unsqueeze(x, i)",
}


def model_of(op: str) -> Model:
    """One node `op` that makes y of x, with what it needs besides."""
    operands = "x, x" if op in SEVERAL else "x"
    attributes = "<axis = 1>" if op == "Concat" else ""
    body = FORMS.get(op, f"y = {op} {attributes} ({operands})")
    return parse(f"g (float[1,4,4,4] x) => (float y) {{ {body} }}", opset=17)


def node_of(model: Model) -> gs.Node:
    return model.graph.outputs[0].inputs[0]


@pytest.mark.parametrize("op", sorted(MOVES | {"Pad", "Resize"}))
def test_what_moves_values_commutes_with_rounding(op: str) -> None:
    model = model_of(op)
    (found,) = run(model, X)
    assert moves(node_of(model))
    assert set(found.reshape(-1).tolist()) <= {*X.reshape(-1).tolist(), 0.0}
    (rounded,) = run(model, np.rint(X))
    assert np.array_equal(rounded, np.rint(found))


@pytest.mark.parametrize(
    "body",
    [
        f"{PADS} v = Constant<value_float = 1.>() y = Pad(x, p, v)",
        f'{SIZES} y = Resize <mode = "linear"> (x, , s)',
        f"""{SIZES} r = Constant<value_floats = [0., 0., 0., 0., 1., 1., 2., 2.]>() y = Resize <
            coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 7.5> (
            x, r, s)""",
        "y = AveragePool <kernel_shape = [2, 2]> (x)",
    ],
)
def test_what_makes_new_values_does_not_move(body: str) -> None:
    model = parse(f"g (float[1,4,4,4] x) => (float y) {{ {body} }}", opset=17)
    (found,) = run(model, X)
    assert not set(found.reshape(-1).tolist()) <= {*X.reshape(-1).tolist(), 0.0}
    assert not moves(node_of(model))


def test_dropout_moves_outside_training_only() -> None:
    body = "t = Constant<value_float = 0.5>() y = Dropout(x, t, m)"
    for train, expected in ((0, True), (1, False)):
        model = parse(f"g (float[1,4] x) => (float y) <bool m = {{{train}}}> {{ {body} }}")
        assert moves(node_of(model)) is expected
    asked = parse(f"g (float[1,4] x, bool m) => (float y) {{ {body} }}")
    assert not moves(node_of(asked))


def test_indices_and_masks_are_no_moved_values() -> None:
    count = {
        op: len(moved_outputs(node_of(model_of(op)))) for op in ("MaxPool", "Dropout", "Split")
    }
    assert count == {"MaxPool": 1, "Dropout": 1, "Split": 2}


@pytest.mark.parametrize("op", sorted(NEVER_NEGATIVE))
def test_what_is_never_negative(op: str) -> None:
    (found,) = run(model_of(op), 10 * X)
    assert found.min() >= 0


@pytest.mark.parametrize("op", sorted(KEEPS_SIGN))
def test_what_keeps_signs(op: str) -> None:
    (found,) = run(model_of(op), np.maximum(X, 0))
    assert found.min() >= 0
    (found,) = run(model_of(op), -np.abs(X) - 1)
    assert op == "Mul" or found.min() < 0, "it is among those that are never negative"
