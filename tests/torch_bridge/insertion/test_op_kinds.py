"""Kinds of modules, functions and methods."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import Tensor, fx, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import torch_bridge as tb  # noqa: E402
from onnxq.errors import OptionError  # noqa: E402
from onnxq.operators.placement import KINDS, is_op_kind  # noqa: E402
from tests.torch_bridge import registries  # noqa: E402
from torch_bridge.insertion.op_kinds import (  # noqa: E402
    FUNCTIONS,
    METHODS,
    MODULES,
    ends_not_negative,
    kind_of,
    module_kind,
)
from torch_bridge.nn import FusedConv2d, QatConv2d, QatLayer, QatLinear  # noqa: E402


def test_the_tables_use_the_words_of_placements() -> None:
    named = {*MODULES.values(), *FUNCTIONS.values(), *METHODS.values()}
    assert named <= KINDS


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (QatConv2d, "Conv"),
        (FusedConv2d, "Conv"),
        (QatLinear, "Linear"),
        (nn.ReLU6, "Clip"),
        (nn.LSTM, None),
        (nn.Sequential, None),
    ],
)
def test_modules_go_by_their_nearest_known_class(kind: type, expected: str | None) -> None:
    assert module_kind(kind.__new__(kind)) == expected


class Ops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.clip = nn.Hardtanh(0.0, 4.0)

    def forward(self, x: Tensor) -> list[Tensor]:
        left, right = torch.split(x, 2)
        return [
            left,
            right,
            F.pad(x, (1, 1)),
            F.pad(x, (1, 1), value=1.0),
            F.pad(x, (1, 1), mode="reflect"),
            x.clamp(min=0),
            x.clamp(-1, 1),
            F.relu6(x),
            self.clip(x),
            torch.tanh(x),
        ]


def test_nodes() -> None:
    made = fx.symbolic_trace(Ops())
    modules = dict(made.named_modules())
    nodes = [n for n in made.graph.nodes if n.op not in ("placeholder", "output")]
    assert [kind_of(n, modules) for n in nodes] == [
        *("Split", "Identity", "Identity", "Pad", None, "Pad"),
        *("Clip", "Clip", "Clip", "Clip", "Tanh"),
    ]
    assert [ends_not_negative(n, modules) for n in nodes[6:]] == [True, False, True, True, False]


# -- kinds of one's own -------------------------------------------------------------------------


class Mine(nn.Module):
    """A layer that derives from none of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.bias = None

    def apply_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return x @ weight.T

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_weights(x, self.weight, None)


def softer(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


def test_registered_kinds_of_all_sorts() -> None:
    with registries.restored():
        tb.register_op_kind(Mine, "Linear")
        tb.register_op_kind(softer, "Tanh")
        tb.register_op_kind("arcsinh", "Asinh")
        assert module_kind(Mine()) == "Linear"
        assert FUNCTIONS[softer] == "Tanh"
        assert METHODS["arcsinh"] == "Asinh"
        assert is_op_kind("Asinh")
        tb.register_op_kind(softer, "Tanh")
        with pytest.raises(OptionError, match="softer has the op kind 'Tanh' already, not 'Relu'"):
            tb.register_op_kind(softer, "Relu")
        tb.register_op_kind(softer, "Relu", replace=True)
        assert FUNCTIONS[softer] == "Relu"
    assert softer not in FUNCTIONS
    assert not is_op_kind("Asinh")


def test_a_registered_layer_is_quantized() -> None:
    class QatMine(QatLayer, Mine):
        """Its weight is quantized."""

    chain = (tb.Link("Mine", (Mine,)),)
    x = (torch.randn(2, 4),)
    with registries.restored():
        with pytest.raises(OptionError, match="Mine has no op kind"):
            tb.Pattern("Mine", chain, qat=QatMine)
        tb.register_op_kind(Mine, "Linear")
        pattern = tb.Pattern("Mine", chain, qat=QatMine, axis=lambda layer: 0)
        q = tb.prepare(nn.Sequential(Mine()), "tensorrt", x, patterns=[pattern])
        assert q.onnxq_report.summary() == "1 of 1 products quantized"
        assert type(q.get_submodule("0")) is QatMine
        # Rules select it by its kind, too.
        rules = [["Linear", {"weight_bits": 4}]]
        q = tb.prepare(nn.Sequential(Mine()), "academic", x, patterns=[pattern], settings=rules)
        assert q.get_submodule("0").weight_fake_quant.spec.bits == 4


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        (nn.SELU, "Sellu", "'Sellu' is not the name of an ONNX operator"),
        (7, "Relu", "7 has no op kind"),
        ("no_such_method", "Relu", "'no_such_method' has no op kind"),
        (int, "Relu", "has no op kind"),
        (nn.ReLU(), "Relu", "has no op kind"),
    ],
)
def test_wrong_kinds_are_refused(what: object, kind: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tb.register_op_kind(what, kind)
