"""Recipes of other networks are refused."""

from __future__ import annotations

import pytest

from onnxq.calibration.recipe import Recipe
from onnxq.errors import OptionError
from onnxq.graph import from_proto
from onnxq.quant.settings import Settings
from onnxq.workflows.quantize import quantize
from tests.models.networks import NETWORKS, samples


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        (Recipe("tensorrt", settings=Settings.of([["head", "float"]])), "no layer matches 'head'"),
        (Recipe("tensorrt", smooth={"gone": 0.5}), "no tensor 'gone', which it smooths"),
    ],
)
def test_a_recipe_of_another_network(recipe: Recipe, why: str) -> None:
    with pytest.raises(OptionError, match=f"recipe does not fit this network: .*{why}") as caught:
        quantize(from_proto(NETWORKS["conv1d"]()), data=samples("conv1d"), recipe=recipe)
    assert "made from" in (caught.value.fix or "")
