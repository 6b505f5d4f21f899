"""Numbers without names, assigned to the inputs of layers."""

from __future__ import annotations

from onnxq.side_files.nnie_numbers import assigned
from tests.models.build import parse


def test_numbers_are_assigned_by_those_of_other_layers() -> None:
    model = parse("g (float[4] a, float[4] b) => (float[4] y) { c = Sub(a, a) y = Add(a, b) }")
    first, last = model.nodes()
    found, unclear = assigned([(first, [1.0, 1.0]), (last, [1.0])])
    assert [given for _, given in found] == [{0: 1.0, 1: 1.0}, {0: 1.0}]
    assert not unclear


def test_a_number_that_no_other_layer_has_is_unclear() -> None:
    model = parse("g (float[4] a, float[4] b) => (float[4] y) { c = Sub(a, a) y = Add(a, b) }")
    first, last = model.nodes()
    _, unclear = assigned([(first, [1.0, 1.0]), (last, [2.0])])
    assert unclear == [last]
