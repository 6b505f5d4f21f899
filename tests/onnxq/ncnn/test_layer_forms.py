"""Layers are read in the form in which they are written, and in no other."""

from __future__ import annotations

import pytest

from onnxq.errors import LoadError
from onnxq.ncnn import writer
from onnxq.ncnn.layer_forms import FORMS, check_form
from onnxq.ncnn.program import Layer
from onnxq.ncnn.reader import READERS
from tests.models.build import quantize
from tests.onnxq.ncnn.cases import CASES, graph


def test_every_type_that_is_read_has_a_form() -> None:
    assert FORMS.keys() == READERS.keys()


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_has_its_form(name: str) -> None:
    for layer in writer.layers_of(quantize(graph(name), "x", lo=-127)):
        check_form(layer)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Layer("Convolution", "c", ("x",), ("y",), {9: 1}), "parameter 9 is not read"),
        (Layer("Sigmoid", "s", ("x", "y"), ("z",)), "reads 2 blobs"),
        (Layer("Split", "s", ("x",), ()), "makes 0 blobs"),
        (Layer("Convolution", "c", ("x",), ("y",), {5: -1}), "parameter 5 is -1, not 0 or 1"),
        (Layer("Convolution", "c", ("x",), ("y",), {8: 102}), "parameter 8 is 102, not 2"),
        (Layer("Pooling", "p", ("x",), ("y",), {4: 1, 1: 2}), "has a window as well"),
        (Layer("BinaryOp", "b", ("x", "y"), ("z",), {2: 0.5}), "has a constant as well"),
        (Layer("BinaryOp", "b", ("x", "y"), ("z",), {1: 1}), "parameter 1 says otherwise"),
    ],
)
def test_other_forms_are_refused(layer: Layer, why: str) -> None:
    with pytest.raises(LoadError, match=why):
        check_form(layer)
