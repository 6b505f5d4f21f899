"""PPQ's own configuration, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from onnxq.formats.ppq_config import FORMAT
from onnxq.graph import Model, from_proto
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import Reader, Role
from tests.models.zoo_build import Build
from tests.onnxq.formats.check import MODEL, check_inverse, refuses_rows, refuses_text, row
from tests.onnxq.formats.tables import BIASES, model, tables


@given(tables())
def test_read_is_the_inverse_of_write(table: QParamTable) -> None:
    check_inverse(FORMAT, QParamTable([r for r in table if r.tensor not in BIASES]))


def test_narrow_ranges_are_held() -> None:
    check_inverse(FORMAT, QParamTable([row("x", "int8", lo=-127)]))


def entry(number: int, **changes: Any) -> dict[str, Any]:
    policy = dict.fromkeys(("PER_CHANNEL", "FLOATING", "SYMMETRICAL"), False)
    policy |= dict.fromkeys(("PER_TENSOR", "LINEAR", "ASYMMETRICAL"), True)
    made = {"bit_width": 8, "policy": policy, "state": "ACTIVATED", "quant_min": 0}
    made |= {"quant_max": 255, "hash": number, "dominator": number}
    return made | changes


def document(configs: dict[str, Any], values: dict[str, Any] | None = None) -> str:
    found = {"1": {"scale": 0.5, "zero_point": 3.0}, "2": {"scale": 0.25, "zero_point": 0}}
    values = found if values is None else values
    return json.dumps({"configs": configs, "dispatchings": {}, "values": values})


def two_readers() -> Model:
    b = Build()
    x = b.input("x", [1, 4])
    left, right = b.op("Relu", x, out="left"), b.op("Neg", x, out="right")
    net = from_proto(b.model(b.op("Add", left, right, out="y")))
    for node in net.nodes():
        node.name = node.op
    return net


def test_an_operator_may_read_on_its_own_grid() -> None:
    configs = {"Relu": {"x": entry(1), "left": entry(1)}, "Add": {"left": entry(2)}}
    assert FORMAT.read(document(configs), two_readers()).rows == [
        row("x", "uint8", 0.5, 3, readers=(Reader("left", 0),)),
        row("left", "uint8", 0.5, 3),
        row("left", "uint8", 0.25, 0, readers=(Reader("y", 0),)),
    ]


def test_readers_that_agree_are_one_row() -> None:
    configs = {"Relu": {"x": entry(1)}, "Neg": {"x": entry(4, dominator=1)}}
    assert FORMAT.read(document(configs), two_readers()).rows == [row("x", "uint8", 0.5, 3)]


def test_what_is_not_quantized_has_no_row() -> None:
    configs = {"node_c": {"x": entry(1, state="FP32"), "conv.b": entry(1, bit_width=32)}}
    assert FORMAT.read(document(configs), MODEL).rows == []


def test_tensors_that_the_graph_lacks_stay_in_the_table() -> None:
    assert FORMAT.read(document({"n": {"z": entry(1)}}), MODEL).rows == [row("z", "uint8", 0.5, 3)]


def test_rows_that_do_not_fit_are_refused() -> None:
    block = row("gemm.w", "int8", [[0.1] * 5] * 4, axis=0, block=2, role=Role.WEIGHT)
    fp8 = row("x", "float8e4m3fn")
    refuses_rows(FORMAT, [block, fp8], "'gemm.w': one scale per block", "'x': codes of type float8")
    refuses_rows(FORMAT, [row("nowhere")], "'nowhere': its producer")


def test_nodes_need_names() -> None:
    with pytest.raises(Exception, match="has no name"):
        FORMAT.write(QParamTable([row("x")]), model())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"configs": {}, "values": {}}', "key 'dispatchings' is missing"),
        (document({"n": 3}), "node 'n' is 3"),
        (document({"n": {"x": {}}}), "node 'n', tensor 'x': key 'bit_width' is missing"),
        (document({"n": {"x": entry(9)}}), "does not contain its dominator 9"),
        (document({"n": {"x": entry(1, state="ODD")}}), "'state' is \"ODD\""),
        (document({"n": {"x": entry(1, quant_max=300)}}), "codes 0..300 do not fit 8 bits"),
        (document({"n": {"x": entry(1, policy={})}}), "key 'PER_TENSOR' is missing"),
        (document({"n": {"x": entry(1)}}, {"1": {"scale": -1, "zero_point": 0}}), "scale -1"),
        (document({"n": {"x": entry(1)}}, {"1": {"scale": 1}}), "key 'zero_point' is missing"),
        (
            document({"n": {"x": entry(1, policy=entry(1)["policy"] | {"FLOATING": True})}}),
            "only static linear grids",
        ),
        (document({"n": {"x": entry(1)}}), "'x': the model has no such node"),
        (
            document({"node_u": {"g": entry(1)}}),
            "'g': the node is neither its producer nor a consumer",
        ),
        (
            document({"n": {"x": entry(1, policy=entry(1)["policy"] | {"PER_CHANNEL": True})}}),
            "'PER_TENSOR' and 'PER_CHANNEL' are both true",
        ),
        (
            document({"n": {"x": entry(1, policy=entry(1)["policy"] | {"LINEAR": 1})}}),
            "'LINEAR' is 1, not true or false",
        ),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    refuses_text(FORMAT, text, why)
