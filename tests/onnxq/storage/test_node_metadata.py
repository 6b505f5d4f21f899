"""Metadata of nodes travels through files and copies."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.graph import from_proto
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.storage.node_metadata import (
    QUANT_MAX,
    QUANT_MIN,
    QUANT_TYPE,
    add_metadata,
    metadata,
    state_type,
    type_of_codes,
)
from tests.models.build import parse


def test_entries_are_written_read_and_replaced() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    (node,) = model.nodes("Relu")
    assert metadata(node) == {}
    add_metadata(node, {QUANT_MIN: "-7", "other": "kept"})
    add_metadata(node, {QUANT_MIN: "-8", QUANT_MAX: "7"})
    wanted = {QUANT_MIN: "-8", "other": "kept", QUANT_MAX: "7"}
    assert metadata(node) == wanted
    assert metadata(model.clone().nodes("Relu")[0]) == wanted
    (again,) = from_proto(model.to_proto()).nodes("Relu")
    assert metadata(again) == wanted
    assert again.op == "Relu"


def test_the_file_a_node_came_from_is_not_changed() -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    twin = model.clone()
    add_metadata(twin.nodes("Relu")[0], {"a": "b"})
    assert metadata(model.nodes("Relu")[0]) == {}


@pytest.mark.parametrize(
    ("kind", "lo", "hi", "stated"),
    [
        ("uint8", 0, 255, False),
        ("int4", -8, 7, False),
        ("int8", 0, 127, True),
        ("int8", -127, 127, False),
    ],
)
def test_the_type_of_codes_is_stated_where_they_do_not_tell_it(
    kind: str, lo: int, hi: int, stated: bool
) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    (node,) = model.nodes("Relu")
    state_type(node, QParams("x", qtype(kind), np.float32(1), np.asarray(0), lo=lo, hi=hi))
    assert (QUANT_TYPE in metadata(node)) is stated
    assert type_of_codes(node, lo, hi) == qtype(kind)


@pytest.mark.parametrize("said", ["int4", "float8e4m3fn", "int32", "nonsense"])
def test_a_type_that_does_not_fit_the_codes_is_not_believed(said: str) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    (node,) = model.nodes("Relu")
    add_metadata(node, {QUANT_TYPE: said})
    assert type_of_codes(node, 0, 127) == qtype("uint8")
    assert type_of_codes(node, -5, 1 << 20) is None
