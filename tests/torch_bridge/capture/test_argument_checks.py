"""Guards of what tracing took for granted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from onnxq.errors import OptionError  # noqa: E402
from torch_bridge.capture.argument_checks import Required, Specialised, TrainingFlag  # noqa: E402


@pytest.mark.parametrize("value", [None, True, "sum", 3, 0.5])
def test_the_value_of_the_example_passes(value: object) -> None:
    assert Specialised("mode", value)(value) is None


@pytest.mark.parametrize(
    ("value", "other"), [(None, torch.zeros(1)), (True, False), (True, 1), ("sum", None), (3, 4)]
)
def test_any_other_value_does_not(value: object, other: object) -> None:
    with pytest.raises(OptionError, match=f"prepared with mode={value!r}"):
        Specialised("mode", value)(other)


def test_required() -> None:
    assert Required("bias")(3) == 3
    with pytest.raises(TypeError, match="missing required keyword argument 'bias'"):
        Required("bias")(None)


def test_the_flag_follows_the_mode() -> None:
    flag = TrainingFlag()
    assert flag() is True
    assert flag.eval()() is False
