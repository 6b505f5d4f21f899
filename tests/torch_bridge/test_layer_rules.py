"""Rules for layers in training: precedence, every way of capture, and a network of mixed bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from onnxq.quant.settings import LayerSettings, Settings  # noqa: E402
from torch_bridge.capture.tracing import LeafTracer, TraceOptions  # noqa: E402
from torch_bridge.insertion.layer_choices import LayerChoices  # noqa: E402
from torch_bridge.insertion.selectors import parts_of  # noqa: E402


class Mixed(nn.Module):
    """Convolutions with a batch norm, a sum, and products of activations."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.mix, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.stem(x)))
        t = (x + self.body(x)).flatten(2).transpose(1, 2)
        scores = torch.softmax(t @ t.transpose(1, 2), -1)
        return self.head((t + scores.matmul(self.mix(t))).mean(1))


X = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def mixed() -> nn.Module:
    torch.manual_seed(0)
    return Mixed()


# -- precedence -----------------------------------------------------------------------------------

_TRACER = LeafTracer()
_TRACER.start(TraceOptions(), ())
_MODEL = mixed()
PARTS = parts_of(_MODEL, _TRACER.trace(_MODEL))
SELECTORS = [
    *("body", "body.0", "body.*", "re:(stem|head)", "*", "Conv", "Linear", "MatMul", "matmul_1"),
    *(nn.Conv2d, nn.Linear, nn.Sequential, nn.Module, torch.matmul, torch.add),
]
RULE = st.tuples(
    st.sampled_from(SELECTORS),
    st.one_of(st.just("float"), st.fixed_dictionaries({"bits": st.integers(2, 16)})),
)


def chosen(rules: list[Any]) -> dict[Any, LayerSettings]:
    """What rules say about each part; classes and functions in words, as a recipe holds them."""
    return LayerChoices(Settings.of(rules), PARTS).settings.of_layers(PARTS)


@settings(deadline=None)
@given(st.lists(RULE, max_size=5))
def test_the_first_rule_that_matches_decides(rules: list[Any]) -> None:
    alone = [chosen([rule]) for rule in rules]
    expected: dict[Any, LayerSettings] = {}
    for found in reversed(alone):
        expected |= found
    assert chosen(rules) == expected


@settings(deadline=None)
@given(st.lists(RULE, max_size=4), RULE)
def test_a_rule_gives_way_to_those_before_it(rules: list[Any], more: Any) -> None:
    before, last, first = chosen(rules), chosen([*rules, more]), chosen([more, *rules])
    assert {part: last[part] for part in before} == before
    assert {part: first[part] for part in chosen([more])} == chosen([more])
    assert set(last) == set(first) == {*before, *chosen([more])}


@settings(deadline=None)
@given(st.lists(RULE, max_size=5), st.integers(0, 4))
def test_a_rule_twice_is_a_rule_once(rules: list[Any], at: int) -> None:
    assert chosen(rules) == chosen([*rules, *rules[:at]])


# -- ways of capture ------------------------------------------------------------------------------

RULES: list[Any] = [
    ("body", {"weight_bits": 4, "activation_bits": 8, "weight_observer": "mse"}),
    (nn.Linear, {"weight_bits": 4, "activation_bits": 16}),
    (torch.matmul, {"activation_bits": 16}),
    ("re:st.m", {"pot_scale": True, "symmetric": True}),
]


def prepared(capture: Any, rules: Any = RULES) -> nn.Module:
    return tb.prepare(mixed(), "onnxruntime", (X[:1],), settings=rules, capture=capture)


def test_graphs_of_both_kinds_follow_the_same_rules() -> None:
    by_fx, by_export = (prepared(way).onnxq_report for way in ("fx", "export"))
    assert {row.what for row in by_fx.rows} == {row.what for row in by_export.rows}
    assert by_fx.rows == by_export.rows
    assert by_fx.rules == by_export.rules


def test_without_a_graph_there_are_no_functions() -> None:
    rules = [rule for rule in RULES if rule[0] is not torch.matmul]
    made, traced = tb.quantizers(prepared("modules", rules)), tb.quantizers(prepared("fx", rules))
    weights = {p: str(q.spec) for p, q in made.items() if p.endswith("weight_fake_quant")}
    assert weights == {p: str(traced[p].spec) for p in weights}
    assert len(weights) == 5
    assert made["head.input_fake_quant"].spec.bits == 16
    with pytest.raises(OptionError, match=r"no layer matches 'torch\.matmul'") as caught:
        prepared("modules")
    assert caught.value.__notes__ == [
        "the model is captured module by module: it has no functions to select"
    ]


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attn(x, x, x, need_weights=False)[0]
        return self.head(F.scaled_dot_product_attention(y, y, y))


def bits(capture: Any, *rules: Any) -> dict[str, int]:
    x = torch.randn(2, 5, 8)
    q = tb.prepare(Attends(), "onnxruntime", (x,), settings=rules, capture=capture)
    return {p: each.spec.bits for p, each in tb.quantizers(q).items()}


@pytest.mark.parametrize("capture", ["fx", "modules"])
def test_attention_goes_by_the_name_that_users_know(capture: Any) -> None:
    plain = bits(capture)
    outside = {p: n for p, n in plain.items() if not p.startswith("attn.")}
    assert bits(capture, (nn.MultiheadAttention, "float")) == outside
    products = {p for p, n in bits(capture, (torch.matmul, {"bits": 16})).items() if n == 16}
    assert products >= {p for p in plain if p.startswith(("attn.scores.", "attn.mixed."))}


def test_functions_that_are_written_out_are_selected_as_they_were() -> None:
    rules = (("attn", "float"), (F.scaled_dot_product_attention, {"bits": 16}))
    found = bits("fx", *rules)
    assert sum(n == 16 for n in found.values()) == 3  # what both products read; keys are values
    assert sorted(bits("export", *rules).values()) == sorted(found.values())


# -- a mixed network ------------------------------------------------------------------------------


def test_a_network_of_mixed_bits_is_deployed(tmp_path: Path) -> None:
    q = prepared("auto")
    with torch.no_grad(), tb.calibrating(q.eval()):
        q(X)
    tb.enable_quantization(q)
    optimizer = torch.optim.Adam(q.parameters(), 2e-3)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(q.train()(X), torch.arange(8) % 4)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    made = tb.deploy(q.eval(), (X,), tmp_path)
    assert made.proven
    types = {params.tensor: str(params.qtype) for params in made.table}
    four = {"body.0.weight", "body.2.weight", "mix.weight", "head.weight"}
    assert {name for name, kind in types.items() if kind == "int4"} == four
    assert types["stem.weight"] == "int8"
    assert types["body.0.activation/Relu_output_0"] == "uint8"
    assert {types["Softmax_output_0"], types["mix/Add_output_0"]} == {"uint16"}
    assert {bits for _, bits in (kind.split("int") for kind in types.values())} == {"4", "8", "16"}
    scale = made.table["stem.weight"].scale
    assert torch.tensor(scale).log2().frac().eq(0).all()
