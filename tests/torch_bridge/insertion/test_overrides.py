"""What a user changes in a scheme."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402

from onnxq.errors import OptionError  # noqa: E402
from onnxq.quant.scheme import QSpec  # noqa: E402
from onnxq.quant.settings import LayerSettings  # noqa: E402
from torch_bridge.arithmetic.spec import QuantizerSpec  # noqa: E402
from torch_bridge.insertion.overrides import Override  # noqa: E402
from torch_bridge.observers.minmax import MinMax  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import calibrating, enable_quantization  # noqa: E402

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


def test_values_that_are_no_changes() -> None:
    with pytest.raises(OptionError, match="4 does not say how to quantize") as caught:
        Override.of(4)  # type: ignore[arg-type]
    assert "{'bits': 4}" in caught.value.fix
    for bits in ("8", 4.0):
        with pytest.raises(OptionError, match="bits"):
            Override.of({"bits": bits})


def test_all_changes_at_once() -> None:
    changed = Override(algorithm="fixed", observer="mse", bits=4, per_channel=False).applied(
        SPEC, "weights", "chip"
    )
    assert (changed.algorithm, changed.observer) == ("fixed", "mse")
    assert changed.range == (-7, 7)
    assert not changed.per_channel


@pytest.mark.parametrize(
    ("change", "learned"),
    [
        (Override(), True),
        (Override(bits=8), True),
        (Override(bits=9), False),
        (Override(bits=16), False),
        (Override(bits=16, algorithm="lsq"), True),
        (Override(bits=16, options={"scale_gradient": False}), True),
        (Override(bits=16, observer="lsq"), True),
    ],
    ids=str,
)
def test_scales_of_wide_codes_do_not_learn_by_themselves(change: Override, learned: bool) -> None:
    made = change.applied(QSpec(("uint8",), observer="ema-minmax"), "activations", "chip")
    assert made.algorithm == ("lsq" if learned else "fixed")


def test_zero_points_may_be_given_up_but_not_taken() -> None:
    loose = QSpec(("uint8", "int8"))
    assert Override(symmetric=True).applied(loose, "weights", "chip").symmetric
    assert not Override(symmetric=False).applied(loose, "weights", "chip").symmetric
    with pytest.raises(OptionError, match="chip has no zero points for weights"):
        Override(symmetric=False).applied(SPEC, "weights", "chip")


def test_symmetric_codes_are_signed() -> None:
    """Zero point 0 of an unsigned type would clip all negative values."""
    loose = QSpec(("uint8", "int8"))
    made = Override(symmetric=True).applied(loose, "activations", "chip")
    assert (made.types[0], made.range) == ("int8", (-128, 127))
    made = Override(symmetric=True, bits=3).applied(loose, "activations", "chip")
    assert (made.types[0], made.range) == ("int4", (-4, 3))
    with pytest.raises(OptionError, match="chip has no signed type for activations"):
        Override(symmetric=True).applied(QSpec(("uint8",)), "activations", "chip")


def test_a_target_with_a_grid_of_its_own() -> None:
    grid = QSpec(("int8",), algorithm="nnie", algorithm_is_grid=True)
    assert Override(algorithm="nnie").applied(grid, "weights", "chip") == grid
    with pytest.raises(OptionError, match="'lsq' cannot train for it"):
        Override(algorithm="lsq").applied(grid, "weights", "chip")


@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_one_clipped_value_does_not_throw_a_wide_scale_off(rate: float) -> None:
    """Few values on 16 bits, one of them clipped: learned, the scale moves by many times itself."""
    x = torch.rand(4, 8, generator=torch.Generator().manual_seed(0))
    moved = {}
    for name, how in (("as ppl trains", None), ("learned", "lsq")):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
        q = prepare(net, "ppl", (x,), activation=how).train()
        with torch.no_grad(), calibrating(q):
            q(x)
        enable_quantization(q)
        (inner,) = (m for n, m in q.named_modules() if n == "_0_fake_quant")
        before = inner.scale.detach().clone()
        trained = [p for p in q.parameters() if p.requires_grad]
        step = torch.optim.SGD(trained, rate)
        q(x * 1.5).square().sum().backward()
        step.step()
        moved[name] = float((inner.scale.detach() / before).abs())
    assert moved["as ppl trains"] == 1.0
    assert moved["learned"] > 2.0


def test_a_rule_for_a_layer_goes_first() -> None:
    given = Override(
        algorithm="dsq",
        observer="mse",
        bits=4,
        symmetric=True,
        per_channel=True,
        pot_scale=False,
        options={"softness": 0.2},
        observer_options={"candidates": 9},
    )
    assert given.after(LayerSettings(method="mse"), weights=True) == given
    rule = LayerSettings(
        weight_bits=3,
        per_channel=False,
        symmetric=False,
        pot_scale=True,
        weight_algorithm="lsq",
        activation_algorithm="pact",
        weight_observer="minmax",
        activation_observer="lsq",
    )
    left = given.after(rule, weights=True)
    assert left == Override(algorithm="lsq", observer="minmax", symmetric=True)
    left = given.after(rule, weights=False)
    assert left == Override(algorithm="pact", observer="lsq", bits=4, per_channel=True)
    same = given.after(LayerSettings(weight_algorithm="dsq", weight_observer="mse"), weights=True)
    assert same == given


def test_powers_of_two_keep_an_algorithm_that_gives_them() -> None:
    spec = QSpec(("int8",), symmetric=True)
    made = Override(pot_scale=True).applied(spec, "weights", "chip")
    assert (made.power_of_two, made.algorithm) == (True, "tqt")
    made = Override(pot_scale=True).applied(QSpec(("uint8",)), "activations", "chip")
    assert (made.power_of_two, made.algorithm) == (True, "fixed")
    stated = Override(pot_scale=True, algorithm="lsq").applied(spec, "weights", "chip")
    assert stated.algorithm == "lsq"  # which its quantizer refuses, with the reason
    with pytest.raises(OptionError, match="scales of weights are powers of two"):
        Override(pot_scale=False).applied(made, "weights", "chip")


def test_an_observer_may_be_a_class() -> None:
    class Third(MinMax):
        """A third of the range."""

        def __init__(self, spec: QuantizerSpec, *, part: float = 1.0) -> None:
            super().__init__(spec)
            self.part = part

        def range(self) -> tuple[torch.Tensor, torch.Tensor]:
            return self.min_val * self.part, self.max_val * self.part

    net = nn.Sequential(nn.Linear(8, 4))
    x = torch.randn(4, 8)
    how = {"observer": Third, "observer_options": {"part": 1 / 3}}
    scales = []
    for weight in (how, {"observer": "minmax"}):
        q = prepare(net, "tensorrt", (x,), weight=weight)
        with calibrating(q):
            q(x)
        scales.append(q.get_submodule("0").weight_fake_quant.scale.detach())
    torch.testing.assert_close(scales[0] * 3, scales[1])
    with pytest.raises(OptionError, match="'Third' has no option 'parts'"):
        prepare(net, "tensorrt", (x,), weight={**how, "observer_options": {"parts": 1}})
    with pytest.raises(OptionError, match="is not an observer"):
        prepare(net, "tensorrt", (x,), weight={"observer": nn.Linear})


@pytest.mark.parametrize("name", ["dorefa", "adaround"])
def test_algorithms_for_weights(name: str) -> None:
    net, x = nn.Sequential(nn.Linear(8, 4)), torch.randn(4, 8)
    assert prepare(net, "tensorrt", (x,), weight=name)
    with pytest.raises(OptionError, match=f"'{name}' is an algorithm for weights"):
        prepare(net, "tensorrt", (x,), activation=name)
