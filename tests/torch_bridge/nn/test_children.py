"""Every place of a module is found, shared ones at each."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from torch_bridge.nn.children import places  # noqa: E402


def test_shared_modules_are_found_at_each_place() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), relu), relu)
    found = {place.path: place for place in places(model)}
    assert list(found) == ["0", "0.0", "0.1", "1"]
    assert found["0.1"].child is found["1"].child is relu
    assert found["0.1"].parent is model[0]
    assert found["1"].parent is model


def test_replacing_while_iterating() -> None:
    model = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    for place in places(model):
        if isinstance(place.child, nn.ReLU):
            place.put(nn.Sigmoid())
    assert [type(m) for m in (model[0][0], model[1])] == [nn.Sigmoid, nn.Sigmoid]


def test_a_model_is_no_place_of_its_own() -> None:
    assert list(places(nn.ReLU())) == []
