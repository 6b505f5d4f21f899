"""What a user changes in a scheme."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from onnxq.errors import OptionError  # noqa: E402
from onnxq.scheme import QSpec  # noqa: E402
from torch_bridge.overrides import Override  # noqa: E402

SPEC = QSpec(("int8",), symmetric=True, per_channel=True, lo=-127)


def test_nothing_changes_nothing() -> None:
    assert Override.of(None).applied(SPEC, "weights", "chip") == SPEC


def test_forms() -> None:
    assert Override.of("pact") == Override(algorithm="pact")
    assert Override.of({"bits": 4}) == Override(bits=4)
    given = Override(bits=3)
    assert Override.of(given) is given
    with pytest.raises(OptionError, match="no option 'observers'") as caught:
        Override.of({"observers": "mse"})
    assert "'observer'" in caught.value.fix


def test_all_changes_at_once() -> None:
    changed = Override(algorithm="fixed", observer="mse", bits=4, per_channel=False).applied(
        SPEC, "weights", "chip"
    )
    assert (changed.algorithm, changed.observer) == ("fixed", "mse")
    assert changed.range == (-7, 7)
    assert not changed.per_channel


def test_zero_points_may_be_given_up_but_not_taken() -> None:
    loose = QSpec(("uint8",))
    assert Override(symmetric=True).applied(loose, "weights", "chip").symmetric
    assert not Override(symmetric=False).applied(loose, "weights", "chip").symmetric
    with pytest.raises(OptionError, match="chip has no zero points for weights"):
        Override(symmetric=False).applied(SPEC, "weights", "chip")


def test_a_target_with_a_grid_of_its_own() -> None:
    grid = QSpec(("int8",), algorithm="nnie", algorithm_is_grid=True)
    assert Override(algorithm="nnie").applied(grid, "weights", "chip") == grid
    with pytest.raises(OptionError, match="'lsq' cannot train for it"):
        Override(algorithm="lsq").applied(grid, "weights", "chip")
