"""Largest magnitudes for NNIE, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize_log import logarithmic
from onnxq.canonical.upsample import UPSAMPLE
from onnxq.errors import LoadError, SaveError
from onnxq.formats.mqbench_nnie import FORMAT
from onnxq.graph import Model
from onnxq.graph.constants import array
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import GRAPH_OUTPUT, Reader, Role
from onnxq.workflows.encodings import detect
from tests.models.build import parse, tensor
from tests.onnxq.formats.check import row

REACHES = st.floats(2.0**-60, 2.0**60, width=32)


def net(body: str = "", name: bool = True, constants: str = "") -> Model:
    """x → Conv → a → ConvTranspose → b, and what `body` makes of them."""
    model = parse(
        f"""g (float[1,2,4,4] x) => (float[?] y)
        <float[2,2,1,1] w = {{1, -0.3, 0.7, 0.1}}, float[2,2,1,1] v = {{0.4, 0.9, -1, 0.2}},
         float[1] s = {{0.5}}, float[4] scales = {{1, 1, 2, 2}}{constants}>
        {{ a = Conv(x, w) b = ConvTranspose(a, v) {body or "y = Add(a, b)"} }}"""
    )
    for node in model.nodes():
        node.name = f"/{node.outputs[0].name}" if name else ""
    for weight in ("w", "v"):
        held = tensor(model, weight)
        held.values = logarithmic(held.values, 1.0)
    return model


def numbers(text: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = json.loads(text)["nnie"]["gfpq_param_dict"]
    return found


def table(*rows: LogParams) -> QParamTable:
    return QParamTable(logarithmic=list(rows))


def by_tensor(found: QParamTable) -> list[LogParams]:
    return sorted(found.logarithmic, key=lambda r: (r.tensor, r.data_max))


def file(**layers: Any) -> str:
    return json.dumps({"nnie": {"gfpq_param_dict": {f"/{k}": v for k, v in layers.items()}}})


@given(REACHES, REACHES, REACHES, REACHES)
def test_read_is_the_inverse_of_write(x: float, a: float, v: float, b: float) -> None:
    model = net()
    tensor(model, "v").values = logarithmic(np.ones((2, 2, 1, 1), np.float32), v)
    rows = [
        LogParams("x", x),
        LogParams("a", a),
        LogParams("b", b),
        LogParams("v", v, Role.WEIGHT),
    ]
    text = FORMAT.write(table(*rows, LogParams("w", 1.0, Role.WEIGHT)), model)
    assert isinstance(text, str)
    reaches = {r.tensor: r.data_max for r in rows}
    assert numbers(text) == {
        "/a": [reaches["x"]],
        "/b": [reaches["a"], reaches["v"]],
        "/y": [reaches["a"], reaches["b"]],
    }
    again = FORMAT.read(text, model)
    assert by_tensor(again) == by_tensor(table(*rows, LogParams("w", 1.0, Role.WEIGHT)))
    assert FORMAT.write(again, model) == text
    assert detect(text.encode(), "file") is FORMAT


def test_weights_get_the_largest_magnitude_they_have_and_keep_their_values() -> None:
    model = net()
    held = tensor(model, "w")
    held.values = logarithmic(held.values * np.float32(0.3), 1.0)
    text = FORMAT.write(table(LogParams("x", 3), LogParams("w", 1.0, Role.WEIGHT)), model)
    (weight,) = [r for r in FORMAT.read(text, model).logarithmic if r.role is Role.WEIGHT]
    values = array(tensor(model, "w"))
    assert values is not None
    assert weight.data_max == np.abs(values).max()
    assert np.array_equal(logarithmic(values, weight.data_max), values)


def test_weights_of_convolutions_in_groups_are_told_by_their_grid() -> None:
    """Such a layer has no key, so only values on a grid say that its weight is quantized."""
    model = net(
        "c = Conv<group=2>(b, on) d = Conv<group=2>(c, off) y = Relu(d)",
        constants=", float[2,1,1,1] on = {0.9, -0.31}, float[2,1,1,1] off = {0.9, -0.31}",
    )
    held = tensor(model, "on")
    held.values = logarithmic(held.values, 0.9)
    reach = float(held.values.max())
    given = [LogParams("x", 2.0), LogParams("a", 1.5), LogParams("v", 1.0, Role.WEIGHT)]
    given += [LogParams(name, r, Role.WEIGHT) for name, r in (("w", 1.0), ("on", reach))]
    found = FORMAT.read(FORMAT.write(table(*given), model), model)
    assert by_tensor(found) == by_tensor(table(*given))


def test_some_readers_and_the_output() -> None:
    model = net("y = Add(a, b)")
    model.graph.outputs.append(tensor(model, "a"))
    model.refresh()
    rows = [LogParams("a", 2, readers=(Reader("b", 0), Reader("y", 0))), LogParams("b", 3)]
    again = FORMAT.read(FORMAT.write(table(*rows), model), model)
    assert by_tensor(again) == by_tensor(table(*rows))


def test_the_input_a_short_list_is_about_is_found_by_other_layers() -> None:
    model = net("c = Neg(x) y = Concat<axis=1>(c, a, b)")
    rows = [LogParams("a", 2), LogParams("b", 3)]
    text = FORMAT.write(table(*rows[:1]), model)
    assert numbers(text) == {"/b": [2], "/y": [2]}
    assert by_tensor(FORMAT.read(text, model)) == by_tensor(table(*rows[:1]))
    with pytest.raises(
        SaveError, match=r"'c': '/y' \(Concat\) does not specify which of its inputs"
    ):
        FORMAT.write(table(rows[1]), model)
    same = net("y = Concat<axis=1>(a, b, a)")
    text = FORMAT.write(table(rows[0]), same)
    assert by_tensor(FORMAT.read(text, same)) == by_tensor(table(rows[0]))
    with pytest.raises(LoadError, match="'/y' has 1 of 3 numbers, and no other layer specifies"):
        FORMAT.read(file(b=[2], y=[2]), same)


def test_a_constant_operand_needs_no_number() -> None:
    model = net("y = Add(b, s)")
    text = FORMAT.write(table(LogParams("b", 3)), model)
    assert numbers(text) == {"/y": [3]}
    assert FORMAT.read(text, model).logarithmic == [LogParams("b", 3)]


def test_an_upsample_is_two_layers() -> None:
    model = net("c = Upsample(a, scales) d = Upsample(b, scales) y = Add(c, d)")
    for node in model.nodes("Upsample"):
        node.domain = UPSAMPLE.partition("::")[0]
    text = FORMAT.write(table(LogParams("b", 3)), model)
    assert numbers(text) == {"/d": [3], "/d_permute_1": [3]}
    assert FORMAT.read(text, model).logarithmic == [LogParams("b", 3)]
    with pytest.raises(LoadError, match="'/d_permute_1' does not have the numbers of '/d'"):
        FORMAT.read(file(d=[3], d_permute_1=[4]), model)
    with pytest.raises(LoadError, match="key '/d_permute_1' is missing"):
        FORMAT.read(file(d=[3]), model)
    with pytest.raises(LoadError, match="no node '/d_permute_0'"):
        FORMAT.read(file(d=[3], d_permute_0=[3]), model)


@pytest.mark.parametrize(
    ("body", "rows", "why"),
    [
        ("y = Mul(a, b)", [LogParams("b", 3)], r"'b': '/y' \(Mul\) has no number for it"),
        ("", [LogParams("y", 3)], "'y': it is a graph output"),
        ("", [LogParams("y", 3, readers=(GRAPH_OUTPUT,))], "'y': it is a graph output"),
        ("", [LogParams("a", 3), LogParams("a", 4)], "'a': it is quantized twice"),
        ("", [LogParams("q", 3)], "'q': the model does not have it"),
        ("", [LogParams("w", 0.5, Role.WEIGHT)], "'w': its values are not on its grid"),
    ],
)
def test_other_places_are_refused(body: str, rows: list[LogParams], why: str) -> None:
    with pytest.raises(SaveError, match=why) as caught:
        FORMAT.write(table(*rows), net(body))
    assert "backend nnie" in caught.value.fix


def test_linear_grids_and_other_weights_are_refused_all_at_once() -> None:
    model = net()
    tensor(model, "w").values = np.float32([[[[1]], [[0.3]]], [[[0.2]], [[0.1]]]])
    with pytest.raises(SaveError) as caught:
        FORMAT.write(QParamTable([row("b", "int8")], [LogParams("x", 3)]), model)
    assert "'b': its grid is linear" in caught.value.what
    assert "'w': it is a weight that is not on a logarithmic grid" in caught.value.what


@pytest.mark.parametrize("name", ["", "/same"])
def test_nodes_without_a_name_of_their_own_are_refused(name: str) -> None:
    model = net()
    for node in model.nodes():
        node.name = name
    with pytest.raises(SaveError, match=r"'x': .* has no name of its own"):
        FORMAT.write(table(LogParams("x", 3)), model)
    if name:
        with pytest.raises(LoadError, match="several nodes '/same'"):
            FORMAT.read(file(same=[3]), model)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "not an object"),
        ('{"nnie": {}}', "key 'gfpq_param_dict' is missing"),
        ('{"nnie": {"gfpq_param_dict": {}, "bits": 8}}', "unknown key 'bits'"),
        (file(c=[1]), "no node '/c'.*'/b'"),
        (file(a=[]), "not a list of numbers"),
        (file(a=2), "not a list of numbers"),
        (file(a=[0]), "'/a'.*positive finite"),
        (file(a=[-2]), "'/a'.*positive finite"),
        (file(a=["wide"]), "not a finite number"),
        (file(a=[1, 2]), "'/a' has 2 numbers for 1 inputs"),
        (file(y=[1]), "'/y' has 1 of 2 numbers"),
        ('{"nnie": {"gfpq_param_dict": {"/a": [1], "/a": [2]}}}', "duplicate key '/a'"),
    ],
)
def test_bad_files_are_refused(text: str, why: str) -> None:
    with pytest.raises(LoadError, match=why) as caught:
        FORMAT.read(text, net())
    assert caught.value.fix


@pytest.mark.parametrize("text", ["{}", '{"nnie": []}', '{"nnie": {}}', '{"vitis": {}}', "nnie"])
def test_others_are_not_recognised(text: str) -> None:
    assert not FORMAT.recognises(text)
