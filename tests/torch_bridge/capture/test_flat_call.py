"""Calls taken apart: names, order, constants, and what comes back."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from torch_bridge.capture.flat_call import FlatCall, unique  # noqa: E402


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@dataclass
class Result:
    score: Tensor
    extra: Any = None


class Model(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, *rest: Any, flag: Any = None, **more: Any) -> Any:
        return self.function(x, *rest, flag=flag, **more)


def _ones(*values: int) -> list[Tensor]:
    return [torch.full((2,), float(v)) for v in values]


def test_inputs_are_named_after_the_signature() -> None:
    a, b, c, d = _ones(1, 2, 3, 4)
    call = FlatCall(Model(lambda x, *r, **k: x["b"]), ({"b": a, "n": 7}, [b]), {"flag": c, "z": d})
    assert call.names == ("x.b", "input_1.0", "flag", "z")
    assert [float(t[0]) for t in call.tensors] == [1, 2, 3, 4]


def test_values_that_are_no_tensors_stay_as_they_were() -> None:
    def function(x: Any, y: Any, flag: Any) -> Tensor:
        assert (y, flag) == ({"k": None, "s": "text"}, 3)
        return x * flag

    (a,) = _ones(1)
    call = FlatCall(Model(function), (a, {"k": None, "s": "text"}), {"flag": 3})
    (result,) = call(torch.tensor([5.0]))
    assert result.tolist() == [15.0]


def test_other_tensors_take_the_same_places() -> None:
    def function(x: Pair, y: Any, flag: Result) -> Tensor:
        assert type(x) is Pair
        assert type(y) is OrderedDict
        return torch.stack([x.left, x.right, y["a"][0], flag.score])

    a, b, c, d = _ones(1, 2, 3, 4)
    call = FlatCall(Model(function), (Pair(a, b), OrderedDict(a=(c,))), {"flag": Result(d, "kept")})
    assert call.names == ("x.left", "x.right", "input_1.a.0", "flag.score")
    (result,) = call(*_ones(5, 6, 7, 8))
    assert result[:, 0].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: x, ["output"]),
        (lambda x: (x, [x, x]), ["output_0", "output_1.0", "output_1.1"]),
        (lambda x: {"b": x, "a": {"c": x}}, ["b", "a.c"]),
        (lambda x: Pair(x, x), ["left", "right"]),
        (lambda x: Result(x, None), ["score"]),
        (lambda x: {"x": x}, ["x_1"]),  # 'x' is the input
    ],
)
def test_outputs_are_named_after_what_is_returned(make: Any, names: list[str]) -> None:
    call = FlatCall(Model(lambda x, flag: make(x)), _ones(1), None)
    assert list(call.outputs()) == names
    assert len(call(*call.tensors)) == len(names)


def test_a_model_without_results_is_refused() -> None:
    call = FlatCall(Model(lambda x, flag: None), _ones(1), None)
    with pytest.raises(UnsupportedModelError, match="returns no tensor"):
        call.outputs()


def test_names_are_numbered_until_they_are_unique() -> None:
    assert unique(["a", "a", "a_1", "b"], ["b"]) == ("a", "a_1", "a_1_1", "b_1")
