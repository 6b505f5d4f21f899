"""Classes and functions as text."""

from __future__ import annotations

import operator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from torch_bridge.insertion.selector_words import class_words, function_words, words  # noqa: E402


class Block(nn.Linear):
    pass


def scaled(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("head.*", "head.*"),
        (nn.Linear, "torch.nn.Linear"),
        (Block, f"{__name__}.Block"),
        (torch.matmul, "torch.matmul"),
        (operator.matmul, "operator.matmul"),
        (torch.Tensor.matmul, "torch.Tensor.matmul"),
        (F.linear, "torch.nn.functional.linear"),
        (F.max_pool2d, "torch.nn.functional.max_pool2d"),  # calls itself 'fn'
        (scaled, f"{__name__}.scaled"),
        (len, "builtins.len"),
    ],
)
def test_one_text_for_each(selector: Any, text: str) -> None:
    assert words(selector) == text


@pytest.mark.parametrize("target", [torch.add, operator.add, operator.iadd, "add", "add_"])
def test_all_forms_of_a_function_have_the_same_words(target: Any) -> None:
    expected = {"torch.add", "operator.add", "operator.iadd", "torch.Tensor.add"}
    assert set(function_words(target)) >= expected
    assert "torch.sub" not in set(function_words(target))


def test_forms_with_other_names() -> None:
    assert {"torch.div", "torch.Tensor.div_"} <= set(function_words(operator.truediv))
    assert set(function_words(scaled)) == {f"{__name__}.scaled"}


def test_a_class_has_the_words_of_its_bases() -> None:
    assert list(class_words(Block)) == [
        *(f"{__name__}.Block", "torch.nn.Linear", "torch.nn.Module")
    ]
