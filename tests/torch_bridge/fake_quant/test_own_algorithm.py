"""Algorithms of one's own that do it wrong are named, at the earliest moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, nn  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError, QParamsError, VerifyError  # noqa: E402
from tests.torch_bridge import registries  # noqa: E402
from torch_bridge.fake_quant import FakeQuantize  # noqa: E402
from torch_bridge.observers import Observer  # noqa: E402

X = (torch.randn(8, 4, generator=torch.Generator().manual_seed(0)),)


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    with registries.restored():
        yield


def prepared(**given: Any) -> nn.Module:
    return tb.prepare(nn.Sequential(nn.Linear(4, 2)), "onnxruntime", X, **given)


def mine(**methods: Any) -> type[FakeQuantize]:
    return type("Mine", (FakeQuantize,), {"algorithm": "mine", **methods})


def test_an_algorithm_that_overrides_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'mine' .Mine. overrides none of quantize"):
        tb.register_algorithm(mine(quantise=lambda self, x: x))


@pytest.mark.parametrize("per", ["tensor", (), ("tensors",)])
def test_unknown_granularities_are_refused(per: object) -> None:
    with pytest.raises(OptionError, match=r"'mine' .Mine. has ranges_per"):
        tb.register_algorithm(mine(ranges_per=per, quantize=lambda self, x: x))


def test_a_wrong_granularity_is_told_with_what_to_write() -> None:
    tb.register_algorithm(mine(ranges_per=("tensor",), quantize=FakeQuantize.on_grid))
    with pytest.raises(OptionError, match="'mine' cannot be") as caught:
        prepared(weight="mine")
    assert 'weight={"algorithm": "mine", "per_channel": False}' in caught.value.fix


@pytest.mark.parametrize("method", ["quantize", "transform"])
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (lambda self, x: None, "None"),
        (lambda self, x: (x, x), "a tuple"),
        (lambda self, x: x[:1], "shape [1, 4]"),
    ],
)
def test_what_is_no_tensor_of_the_same_shape(
    method: str, found: Callable[..., Any], words: str
) -> None:
    tb.register_algorithm(mine(**{method: found}))
    q = prepared(weight="mine")
    with tb.calibrating(q):
        q(*X)
    tb.enable_quantization(q)
    with pytest.raises(QParamsError, match=r"'0.weight.*mine") as caught:
        q(*X)
    assert f"got {words} from {method}(x)" in caught.value.what


class Nameless(FakeQuantize):
    """Takes no name."""

    algorithm = "mine"

    def __init__(self, spec: Any, observer: Observer) -> None:
        super().__init__(spec, observer)

    def quantize(self, x: Tensor) -> Tensor:
        return self.on_grid(x)


class Hasty(Observer):
    """Forgets to call the constructor of its base."""

    observer = "hasty"

    def __init__(self, spec: Any) -> None:
        self.remember("k", torch.zeros(()))


def test_a_constructor_that_fails_is_named() -> None:
    tb.register_algorithm(Nameless)
    tb.register_observer(Hasty)
    with pytest.raises(OptionError, match="algorithm 'mine' cannot be made: TypeError"):
        prepared(weight="mine")
    with pytest.raises(OptionError, match="observer 'hasty' cannot be made") as caught:
        prepared(activation={"observer": "hasty"})
    assert "super().__init__(spec) first" in caught.value.fix
    how = {"observer": "ema-quantile", "observer_options": {"quantile": "0.9"}}
    with pytest.raises(OptionError, match="observer 'ema-quantile' cannot be made: TypeError"):
        prepared(activation=how)


def test_an_observer_is_no_algorithm() -> None:
    with pytest.raises(OptionError, match="'minmax' is an observer") as caught:
        prepared(activation="minmax")
    assert caught.value.fix == 'give it as activation={"observer": "minmax"}'


def test_values_that_the_file_does_not_have_are_traced_to_the_algorithm(tmp_path: Any) -> None:
    tb.register_algorithm(mine(quantize=lambda self, x: self.on_grid(x) * 1.5))
    q = prepared(activation="mine")
    with tb.calibrating(q):
        q(*X)
    tb.enable_quantization(q)
    with pytest.raises(VerifyError) as caught:
        tb.deploy(q.eval(), X, tmp_path)
    assert "Look at 'mine': in eval mode quantize() must" in caught.value.fix


def test_a_set_range_that_forgets_the_base_is_named_in_calibration() -> None:
    tb.register_algorithm(mine(set_range=lambda self, scale, zero_point: None))
    q = prepared(weight="mine")
    with tb.calibrating(q), pytest.raises(QParamsError, match=r"\(mine\) has no range") as caught:
        q(*X)
    assert "call super().set_range(scale, zero_point) in set_range of Mine" in caught.value.fix


def test_an_option_that_is_no_keyword_is_told_with_the_star() -> None:
    class Positional(FakeQuantize):
        algorithm = "positional"

        def __init__(self, spec: Any, observer: Any, name: str = "", strength: float = 1.0) -> None:
            super().__init__(spec, observer, name)

        quantize = FakeQuantize.on_grid

    tb.register_algorithm(Positional)
    with pytest.raises(OptionError, match="'positional' has no option 'strength'") as caught:
        prepared(weight={"algorithm": "positional", "options": {"strength": 2.0}})
    assert "write a * before 'strength'" in caught.value.fix


def test_the_base_to_derive_from_is_named_as_it_is_imported() -> None:
    with pytest.raises(OptionError) as caught:
        tb.register_algorithm(nn.Linear)  # type: ignore[arg-type]
    assert "derive it from torch_bridge.fake_quant.FakeQuantize" in caught.value.fix
    with pytest.raises(OptionError) as caught:
        tb.register_observer(nn.Linear)  # type: ignore[arg-type]
    assert "derive it from torch_bridge.observers.Observer" in caught.value.fix


def test_scales_that_leave_the_powers_of_two_name_the_attribute(tmp_path: Path) -> None:
    def refresh(self: FakeQuantize) -> None:
        self.scale = torch.full_like(self.scale, 0.3)

    tb.register_algorithm(mine(refresh=refresh))
    net = nn.Sequential(nn.Conv2d(3, 4, 3))
    x = (torch.randn(2, 3, 5, 5),)
    q = tb.prepare(net, "vitis", x, weight="mine")
    with tb.calibrating(q):
        q(*x)
    tb.enable_quantization(q)
    with pytest.raises(QParamsError, match=r"\(mine\) has scales that are not powers") as caught:
        tb.deploy(q.eval(), x, tmp_path)
    assert "learns_any_scale = True in Mine" in caught.value.fix


def trained(kind: type[FakeQuantize], **how: Any) -> nn.Module:
    tb.register_algorithm(kind)
    q = prepared(weight={"algorithm": "mine", **how})
    with tb.calibrating(q):
        q(*X)
    tb.enable_quantization(q)
    return q(*X)  # type: ignore[no-any-return]


def refreshed(**found: Any) -> type[FakeQuantize]:
    """An algorithm whose refresh leaves another scale or zero point."""

    def refresh(self: FakeQuantize) -> None:
        for name, change in found.items():
            setattr(self, name, change(getattr(self, name)))

    return mine(refresh=refresh)


@pytest.mark.parametrize(
    ("kind", "words", "fix"),
    [
        (refreshed(scale=lambda s: -s.abs()), "has the scale -", "keep it so in refresh() of Mine"),
        (refreshed(scale=lambda s: s * torch.nan), "has the scale nan", "NaN in what it learns"),
        (refreshed(zero_point=lambda z: z * 0 + 3), "zero point 3, which must be 0", "refresh()"),
        (refreshed(scale=lambda s: s.new_ones(3)), "scales of shape [3]", "keep the shape"),
    ],
)
def test_a_grid_that_no_file_holds_is_found_in_training(
    kind: type[FakeQuantize], words: str, fix: str
) -> None:
    with pytest.raises(QParamsError, match=r"quantizer '0.weight.*' \(mine\) has") as caught:
        trained(kind)
    assert words in caught.value.what
    assert fix in caught.value.fix


def test_a_class_is_no_name_of_an_algorithm() -> None:
    with pytest.raises(OptionError, match="algorithm=Mine is not a name") as caught:
        prepared(weight={"algorithm": mine(quantize=FakeQuantize.on_grid)})
    assert "register_algorithm(Mine)" in caught.value.fix


def test_a_misspelt_attribute_is_refused() -> None:
    kind = mine(quantize=FakeQuantize.on_grid, symetric_only=True)
    with pytest.raises(OptionError, match="Mine defines 'symetric_only'") as caught:
        tb.register_algorithm(kind)
    assert "write 'symmetric_only'" in caught.value.fix


class Unfinished(FakeQuantize):
    """Forgets to call the constructor of its base, and touches nothing."""

    algorithm = "mine"

    def __init__(self, spec: Any, observer: Any, name: str = "") -> None:
        pass

    quantize = FakeQuantize.on_grid


class Blank(Observer):
    """The same for an observer."""

    observer = "blank"

    def __init__(self, spec: Any) -> None:
        pass

    def range(self) -> tuple[Tensor, Tensor]:
        return self.min_val, self.max_val


def test_a_constructor_without_that_of_its_base_is_named() -> None:
    tb.register_algorithm(Unfinished)
    tb.register_observer(Blank)
    for given in ({"weight": "mine"}, {"activation": {"observer": "blank"}}):
        with pytest.raises(OptionError, match=r"does not call super\(\).__init__"):
            prepared(**given)


def test_an_option_of_the_observer_is_told_where_it_goes() -> None:
    how = {"observer": "ema-quantile", "options": {"quantile": 0.9}}
    with pytest.raises(OptionError, match="'lsq' has no option 'quantile'") as caught:
        prepared(activation=how)
    assert "\"observer_options\": {'quantile': 0.9}" in caught.value.fix
