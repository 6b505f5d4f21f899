"""Whether a recipe belongs to a network: its layers and tensors are there."""

from __future__ import annotations

from onnxq.backend import Backend
from onnxq.calibration.placing import Placing
from onnxq.calibration.recipe import Recipe
from onnxq.errors import OptionError
from onnxq.graph import Model


def check_network(recipe: Recipe, model: Model, backend: Backend) -> None:
    """Refuse a recipe whose rules or smoothed tensors are not those of `model`."""
    try:
        Placing(model, backend, recipe.settings)
    except OptionError as error:
        raise _refused(error.what.removeprefix("settings: ")) from error
    tensors = {t.name for node in model.nodes() for t in (*node.inputs, *node.outputs)}
    lost = sorted(set(recipe.smooth) - tensors)
    if lost:
        raise _refused(f"there is no tensor '{lost[0]}', which it smooths")


def _refused(why: str) -> OptionError:
    return OptionError(
        f"the recipe does not fit this network: {why}",
        fix="give the model that the recipe was made from; for another one, quantize it without "
        "--recipe",
    )


__all__ = ["check_network"]
