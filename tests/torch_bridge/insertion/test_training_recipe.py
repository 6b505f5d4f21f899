"""The choices of prepare as text: round trips, replays, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from hypothesis import assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.calibration.recipe import Recipe  # noqa: E402
from onnxq.errors import LoadError, OptionError  # noqa: E402
from onnxq.quant.settings import Settings  # noqa: E402
from torch_bridge.insertion.overrides import Override  # noqa: E402
from torch_bridge.insertion.training_recipe import TrainingRecipe, plan  # noqa: E402
from torch_bridge.observers.minmax import MinMax  # noqa: E402


class Thirds(MinMax):
    """An observer without a name."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        return self.head(torch.add(self.second(x), x))


X = (torch.linspace(-1, 1, 12).view(3, 4),)
SELECTORS = ["head", "re:f.*", "*cond", "Linear", nn.Linear, torch.add, F.relu, "Add"]
CHANGES: Any = st.one_of(
    st.just("float"),
    st.fixed_dictionaries(
        {},
        optional={
            "weight_bits": st.integers(2, 16),
            "activation_bits": st.integers(2, 16),
            "algorithm": st.sampled_from(["lsq", "fixed"]),
            "activation_algorithm": st.just("pact"),
            "observer": st.sampled_from(["mse", "minmax", Thirds]),
            "symmetric": st.just(True),
            "per_channel": st.booleans(),
        },
    ),
)
RULES = st.lists(st.tuples(st.sampled_from(SELECTORS), CHANGES), max_size=4)
HOW: Any = st.one_of(
    st.none(),
    st.just("lsq"),
    st.fixed_dictionaries(
        {}, optional={"bits": st.integers(2, 8), "observer": st.sampled_from(["mse", Thirds])}
    ),
)


def prepared(**how: Any) -> nn.Module:
    torch.manual_seed(0)
    return tb.prepare(Net(), "onnxruntime", X, **how)


@settings(max_examples=50, deadline=None)
@given(
    RULES, HOW, HOW, st.lists(st.sampled_from(SELECTORS), max_size=2), st.booleans(), st.booleans()
)
def test_text_round_trip(
    rules: Any, weight: Any, activation: Any, exclude: Any, frozen: bool, from_quantize: bool
) -> None:
    given_: Any = Recipe("vitis", method="mse", smooth={"ä": 0.5}) if from_quantize else rules
    made = plan(
        given_,
        "vitis",
        weight=weight,
        activation=activation,
        exclude=exclude,
        include=(),
        leaf_modules=(nn.Linear,),
        freeze_bn=frozen,
        capture="fx",
    )
    text = made.dumps()
    again = TrainingRecipe.loads(text)
    assert again.dumps() == text
    assert (again.settings, again.exclude, again.freeze_bn) == (
        *(made.settings, made.exclude, frozen),
    )
    assert again.quantized == made.quantized
    assert Override.of(weight).bits == again.weight.bits


@pytest.mark.filterwarnings("ignore:prepare for onnxruntime:UserWarning")  # all layers are float
@settings(max_examples=15, deadline=None)
@given(RULES, HOW)
def test_a_recipe_prepares_the_same_again(rules: Any, weight: Any) -> None:
    q = prepared(settings=rules, weight=weight)
    assume(q.onnxq_report.rows)
    text = tb.recipe(q).dumps()
    again = tb.prepare(Net(), example_inputs=X, settings=TrainingRecipe.loads(text))
    assert tb.recipe(again).dumps() == text
    assert again.onnxq_report.rows == q.onnxq_report.rows
    assert again.onnxq_report.rules == q.onnxq_report.rules


def trained(q: nn.Module) -> nn.Module:
    with torch.no_grad(), tb.calibrating(q):
        q(*X)
    tb.enable_quantization(q)
    q(*X).square().mean().backward()
    torch.optim.SGD(q.parameters(), 0.01).step()
    return q.eval()


RULE = [("second", {"activation_bits": 16}), (nn.Linear, {"weight_bits": 4, "observer": Thirds})]


@pytest.mark.parametrize("how", ["file", "recipe", "checkpoint", "wrapped"])
def test_a_checkpoint_is_rebuilt_and_written_byte_for_byte(how: str, tmp_path: Path) -> None:
    q = trained(prepared(settings=RULE, exclude="head"))
    torch.save(q.state_dict(), tmp_path / "q.pt")
    state = torch.load(tmp_path / "q.pt", weights_only=True)
    (tmp_path / "recipe.json").write_text(tb.recipe(q).dumps())
    given_ = {
        "file": tmp_path / "recipe.json",
        "recipe": tb.recipe(q),
        "checkpoint": tb.recipe(state),
        "wrapped": tb.recipe({f"module.{k}": v for k, v in state.items()}),
    }[how]
    again = tb.prepare(Net(), example_inputs=X, settings=given_).eval()
    again.load_state_dict(state)
    files = [tb.export(m, X, tmp_path / f"{i}.onnx") for i, m in enumerate((q, again))]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_scales_are_not_loaded_for_other_codes() -> None:
    q = trained(prepared(settings=RULE))
    with pytest.raises(RuntimeError, match=r"codes int8 -127\.\.127, not int4 -7\.\.7") as caught:
        prepared().load_state_dict(q.state_dict())
    assert str(caught.value).count("settings=torch_bridge.recipe(checkpoint)") == 1
    assert "first_fake_quant has codes uint8 0..255, not uint16 0..65535" in str(caught.value)
    older = {
        k: v[:3] if k.endswith("fake_quant._extra_state") else v for k, v in q.state_dict().items()
    }
    prepared(settings=RULE).load_state_dict(older)  # without text


def test_what_the_recipe_says_is_not_said_again() -> None:
    recipe = tb.recipe(prepared(settings=RULE))
    with pytest.raises(OptionError, match="already says what weight and exclude are"):
        tb.prepare(Net(), None, X, settings=recipe, weight="lsq", exclude=["head"])
    with pytest.raises(OptionError, match=r"recipe is for onnxruntime, .* given is vitis"):
        tb.prepare(Net(), "vitis", X, settings=recipe)
    tb.prepare(Net(), "onnxruntime", X, settings=recipe)


def test_what_has_no_recipe() -> None:
    with pytest.raises(OptionError, match="Linear holds no recipe"):
        tb.recipe(nn.Linear(2, 2))
    with pytest.raises(OptionError, match="the checkpoint holds no recipe"):
        tb.recipe(nn.BatchNorm1d(2).state_dict())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({'"version": 1': '"version": 2'}, "'version' is 2, not 1"),
        ({'"exclude": []': '"exclude": "head"'}, "'exclude' is not a list of names"),
        ({'"freeze_bn": false': '"freeze_bn": 0'}, "'freeze_bn' is 0, not true or false"),
        ({'"exclude"': '"excluded"'}, "key 'exclude' is missing"),
        ({'"capture"': '"capturing": 1, "capture"'}, "unknown key 'capturing'"),
    ],
)
def test_text_that_is_no_recipe(change: dict[str, str], words: str) -> None:
    text = tb.recipe(prepared()).dumps()
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(LoadError, match=words):
        TrainingRecipe.loads(text)


def test_options_that_text_cannot_hold() -> None:
    q = prepared(weight=Override(observer="mse", observer_options={"candidates": torch.tensor(9)}))
    assert tb.recipe(q).weight.observer_options == {"candidates": 9}
    with pytest.raises(OptionError, match="cannot keep as text"):
        TrainingRecipe("chip", weight=Override(options={"softness": object()})).dumps()


def test_a_long_recipe_is_printed_short() -> None:
    rules = Settings.of([[f"layer{i}", "float"] for i in range(500)])
    made = TrainingRecipe("onnxruntime", rules, quantized=Recipe("onnxruntime", settings=rules))
    assert str(made) == (
        "<TrainingRecipe for onnxruntime: 500 rules, ranges of "
        "<Recipe for onnxruntime: ranges by mse, 500 rules, 0 grids>>"
    )
