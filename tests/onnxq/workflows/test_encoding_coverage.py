"""Side files that do not fit their model: everything is told, at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.backend import find_backend
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Role
from onnxq.quant.qtypes import qtype
from onnxq.workflows.encoding_coverage import MOST_SHOWN, Coverage, examine
from tests.models.build import parse
from tests.onnxq.formats.tables import ACTIVATIONS, SHAPES, model

MODEL = model()
WEIGHTS = {name: Role.WEIGHT for name in SHAPES}
WHOLE = dict.fromkeys(ACTIVATIONS, Role.ACTIVATION) | WEIGHTS


def row(name: str, role: Role, kind: str = "int8", **more: Any) -> QParams:
    scale = np.ones(more.pop("channels", ()))
    return QParams(name, qtype(kind), scale, np.zeros(()), role=role, **more)


def table(roles: dict[str, Role], *others: QParams) -> QParamTable:
    named = {other.tensor for other in others}
    return QParamTable([*(row(n, r) for n, r in roles.items() if n not in named), *others])


def test_a_whole_table_fits() -> None:
    found = examine(table(WHOLE), MODEL)
    assert found == Coverage()
    assert found.complete
    assert found.lines() == []


def test_unknown_tensors_come_with_what_may_have_been_meant() -> None:
    roles = {k: v for k, v in WHOLE.items() if k != "gemm_t.w"}
    found = examine(table(roles, row("gemm_t.W", Role.WEIGHT), row("zzz", Role.ACTIVATION)), MODEL)
    assert found.unknown == {"gemm_t.W": "did you mean 'gemm_t.w'?", "zzz": ""}
    assert list(found.weights) == ["gemm_t.w"]
    assert found.unusable == {"gemm_t.W", "zzz"}


def test_missing_activations_and_weights() -> None:
    found = examine(table({"x": Role.ACTIVATION, "conv.w": Role.WEIGHT}), MODEL)
    assert list(found.missing) == ["c", "p", "g", "h"]
    assert list(found.weights) == ["up.w", "gemm.w", "gemm_t.w", "mat.w"]
    assert "Gemm" in found.missing["p"]
    without = examine(table({"x": Role.ACTIVATION}), MODEL, want_weights=False)
    assert not without.weights


def test_what_stays_float_on_purpose_is_not_missing() -> None:
    roles = {k: v for k, v in WHOLE.items() if k not in ("p", "f", "gemm.w")}
    assert not examine(table(roles), MODEL).complete
    assert examine(table(roles), MODEL, stay_float=frozenset({"p", "gemm.w"})).complete
    assert list(examine(table(WHOLE), MODEL, stay_float=frozenset({"q"})).unknown) == ["q"]


def test_what_is_left_out_is_no_fault() -> None:
    found = examine(table({"x": Role.ACTIVATION, "conv.w": Role.WEIGHT}), MODEL)
    assert (found.complete, found.faulty) == (False, False)
    assert examine(table(WHOLE, row("zzz", Role.ACTIVATION)), MODEL).faulty
    assert examine(table(WHOLE, row("c", Role.WEIGHT)), MODEL).faulty
    assert examine(table(WHOLE, row("c", Role.BIAS, "int32")), MODEL).faulty


def test_wrong_groups() -> None:
    swapped = (
        row("conv.w", Role.ACTIVATION),
        row("c", Role.WEIGHT),
        row("gemm.b", Role.ACTIVATION),
    )
    found = examine(table(WHOLE, *swapped), MODEL)
    assert list(found.wrong_group) == ["conv.w", "c", "gemm.b"]
    assert "a parameter of a layer" in found.wrong_group["conv.w"]
    assert "computed at run time" in found.wrong_group["c"]
    assert not found.unusable


def test_a_number_among_the_activations_is_in_either_group() -> None:
    net = parse("g (float[4] x) => (float[4] y) <float k = {2}> { y = Mul(x, k) }")
    for role in (Role.ACTIVATION, Role.WEIGHT):
        assert examine(QParamTable([row("k", role)]), net).complete


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row("conv.w", Role.WEIGHT, channels=5, axis=0), "5 scales for 6 channels"),
        (row("conv.w", Role.WEIGHT, channels=5, axis=7), "axis 7 does not exist"),
        (row("c", Role.BIAS, "int32"), "32 bits are for biases"),
    ],
)
def test_wrong_types(bad: QParams, why: str) -> None:
    found = examine(table(WHOLE, bad), MODEL)
    assert why in found.wrong_type[bad.tensor]
    assert found.unusable == {bad.tensor}


def test_a_tensor_of_integers_has_no_range() -> None:
    net = parse(
        "g (float[2,2] x) => (float[4] y) <int64[1] to = {-1}> { y = Reshape(x, to) }"
    )  # fmt: skip
    found = examine(QParamTable([row("to", Role.WEIGHT)]), net)
    assert found.wrong_type == {"to": "it contains int64, which is never quantized"}


def test_a_target_has_its_own_needs() -> None:
    tensorrt = find_backend("tensorrt")
    # Types are brought to those of the target by its passes, or refused by its scheme.
    for kind in ("int16", "uint8"):
        other = row("x", Role.ACTIVATION, kind)
        assert examine(table(WHOLE, other), MODEL, backend=tensorrt).complete
    roles = {k: v for k, v in WHOLE.items() if k != "u"}
    assert list(examine(table(roles), MODEL, backend=tensorrt).missing) == ["u"]  # AveragePool
    assert examine(table(roles), MODEL).complete


def test_long_lists_are_cut_and_counted() -> None:
    found = Coverage(unknown={f"t{i}": "" for i in range(MOST_SHOWN + 3)})
    lines = found.lines()
    assert lines[0] == f"{MOST_SHOWN + 3} in the file, not in the graph:"
    assert lines[-1] == "  ... and 3 more"
    assert len(lines) == MOST_SHOWN + 2
