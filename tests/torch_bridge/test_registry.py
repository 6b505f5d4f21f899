"""Algorithms and observers of one's own: registered, or provided by packages."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import ClassVar

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.discovery import ALGORITHMS_GROUP, OBSERVERS_GROUP  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from tests.torch_bridge import registries  # noqa: E402
from torch_bridge.fake_quant import FakeQuantize  # noqa: E402
from torch_bridge.fake_quant.fixed import Fixed  # noqa: E402
from torch_bridge.observers import Observer  # noqa: E402

X = (torch.ones(2, 4),)

pytestmark = pytest.mark.usefixtures("forgotten")


class Mine(Fixed):
    """An algorithm from elsewhere."""

    algorithm: ClassVar[str] = "mine"


class Wide(Observer):
    """An observer from elsewhere."""

    observer: ClassVar[str] = "wide"

    def range(self):
        return self.min_val * 2, self.max_val * 2


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def algorithms(q: nn.Module) -> dict[str, str]:
    return {path: each.algorithm for path, each in tb.quantizers(q).items()}


# -- registered by a program ----------------------------------------------------------------------


def test_registered_names_work_where_built_in_ones_do() -> None:
    assert tb.register_algorithm(Mine) is Mine
    assert tb.register_observer(Wide) is Wide
    rules = [["2", {"weight_algorithm": "mine", "weight_observer": "wide"}]]
    how = {"algorithm": "mine", "observer": "wide"}
    q = tb.prepare(net(), "onnxruntime", X, settings=rules, activation=how)
    assert algorithms(q) == {
        "0.weight_fake_quant": "lsq",
        "2.weight_fake_quant": "mine",
        "input_1_fake_quant": "mine",
        "_0_fake_quant": "mine",
    }
    assert type(q.get_submodule("2").weight_fake_quant.observer) is Wide
    assert type(q.input_1_fake_quant.observer) is Wide
    # Recipes and checkpoints hold the names.
    again = tb.prepare(net(), example_inputs=X, settings=tb.recipe(q.state_dict()))
    assert algorithms(again) == algorithms(q)
    assert tb.recipe(again).dumps() == tb.recipe(q).dumps()
    assert type(again.input_1_fake_quant.observer) is Wide


def test_a_checkpoint_of_an_unknown_name_says_how_to_make_it_known() -> None:
    with registries.restored():
        tb.register_algorithm(Mine)
        state = tb.prepare(net(), "onnxruntime", X, weight="mine").state_dict()
    with pytest.raises(OptionError, match="no quantization algorithm 'mine'") as caught:
        tb.prepare(net(), example_inputs=X, settings=tb.recipe(state))
    assert "register_algorithm" in caught.value.fix


def test_near_matches_contain_registered_names() -> None:
    tb.register_algorithm(Mine)
    tb.register_observer(Wide)
    with pytest.raises(OptionError) as caught:
        tb.prepare(net(), "onnxruntime", X, weight="mien")
    assert "'mine'" in caught.value.fix
    with pytest.raises(OptionError) as caught:
        tb.prepare(net(), "onnxruntime", X, weight={"observer": "wid"})
    assert "'wide'" in caught.value.fix


def test_a_name_is_given_once() -> None:
    class Usurper(Fixed):
        algorithm: ClassVar[str] = "lsq"

    with pytest.raises(OptionError, match=r"'lsq' exists already: .*Lsq and .*Usurper"):
        tb.register_algorithm(Usurper)
    tb.register_algorithm(Usurper, replace=True)
    assert tb.ALGORITHMS.find("lsq") is Usurper


def test_a_class_defined_again_is_a_new_version() -> None:
    def cell() -> type[Observer]:
        class Again(Observer):
            observer: ClassVar[str] = "again"

        return tb.register_observer(Again)

    first, second = cell(), cell()
    assert first is not second
    assert tb.OBSERVERS.find("again") is second


@pytest.mark.parametrize("wrong", [None, 7, nn.Module, type("Nameless", (Fixed,), {}), Wide])
def test_other_things_are_refused(wrong: object) -> None:
    with pytest.raises(OptionError, match="is not a subclass of FakeQuantize") as caught:
        tb.register_algorithm(wrong)
    assert "algorithm = '...'" in caught.value.fix


def test_the_listing_shows_name_summary_and_provider() -> None:
    tb.register_algorithm(Mine)
    row = next(line for line in str(tb.ALGORITHMS).splitlines() if line.startswith("mine "))
    assert row.split()[-1] == __name__
    assert "An algorithm from elsewhere." in row
    assert str(tb.ALGORITHMS).count("\n") + 1 == len(tb.ALGORITHMS)


# -- provided by packages -------------------------------------------------------------------------


def test_packages_provide_classes_and_modules_of_them(publish: Callable[..., None]) -> None:
    module = ModuleType("several")
    for name in ("one", "two"):
        kind = type(name, (Wide,), {"observer": name, "__module__": "several"})
        setattr(module, name, kind)
    module.Wide = Wide  # only imported there
    publish("chips", ALGORITHMS_GROUP, mine=Mine)
    publish("lenses", OBSERVERS_GROUP, several=module)
    q = tb.prepare(net(), "tensorrt", X, weight={"algorithm": "mine", "observer": "two"})
    assert type(q.get_submodule("0").weight_fake_quant) is Mine
    assert type(q.get_submodule("0").weight_fake_quant.observer) is module.two
    assert {"one", "two"} <= set(tb.OBSERVERS)
    assert "wide" not in tb.OBSERVERS
    assert "chips" in str(tb.ALGORITHMS)


def test_a_class_that_its_package_also_registers_is_one(publish: Callable[..., None]) -> None:
    publish("chips", ALGORITHMS_GROUP, mine=Mine)
    tb.register_algorithm(Mine)
    assert tb.ALGORITHMS["mine"] is Mine


@pytest.mark.parametrize("name", ["mine", "lsq"])
def test_a_clash_names_both(publish: Callable[..., None], name: str) -> None:
    if name == "mine":
        tb.register_algorithm(Mine)
    publish("rival", ALGORITHMS_GROUP, x=type("Rival", (Fixed,), {"algorithm": name}))
    own = __name__ if name == "mine" else "torch_bridge"
    with pytest.raises(OptionError, match=f"'{name}' is provided by both {own} and rival"):
        tb.prepare(net(), "tensorrt", X)


def test_a_broken_package_is_named_to_who_asks_and_listed(publish: Callable[..., None]) -> None:
    publish("sick", OBSERVERS_GROUP, ill="no_such_module:Thing", odd="torch.nn:Linear")
    tb.prepare(net(), "tensorrt", X)
    with pytest.raises(OptionError, match="'ill' could not be loaded: ModuleNotFound") as caught:
        tb.prepare(net(), "tensorrt", X, weight={"observer": "ill"})
    assert "'sick'" in caught.value.fix
    assert "ill" not in tb.OBSERVERS
    assert "could not be loaded: ModuleNotFoundError" in str(tb.OBSERVERS)
    assert "not a subclass of Observer" in str(tb.OBSERVERS)
    assert issubclass(tb.OBSERVERS["minmax"], Observer)
    assert issubclass(tb.ALGORITHMS["lsq"], FakeQuantize)
