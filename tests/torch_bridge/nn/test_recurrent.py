"""Recurrent layers taken apart compute what torch's do."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import pack_sequence  # noqa: E402

from onnxq.errors import UnsupportedModelError  # noqa: E402
from torch_bridge.nn.recurrent import Recurrent, expand_recurrent  # noqa: E402
from torch_bridge.nn.recurrent_cell import RecurrentCell  # noqa: E402

LAYERS = {
    "LSTM": (nn.LSTM, {}),
    "projected LSTM": (nn.LSTM, {"proj_size": 3}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {}),
    "RNN of ReLU": (nn.RNN, {"nonlinearity": "relu"}),
}


def states(source: nn.RNNBase, *batch: int) -> Any:
    """A first state for `source`."""
    rows = source.num_layers * (1 + source.bidirectional)
    h = torch.randn(rows, *batch, source.proj_size or source.hidden_size)
    return (h, torch.randn(rows, *batch, source.hidden_size)) if source.mode == "LSTM" else h


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("kind", LAYERS)
def test_results_states_and_gradients(kind: str) -> None:
    make, more = LAYERS[kind]
    torch.manual_seed(0)
    for layers, both, first, bias in itertools.product((1, 2), *[(False, True)] * 3):
        source = make(
            5, 4, layers, bias=bias, batch_first=first, bidirectional=both,
            dropout=0.5 * (layers - 1), **more,
        ).eval()  # fmt: skip
        made = Recurrent(source)
        assert not made.training
        x = torch.randn(2, 3, 5, requires_grad=True)
        first_state = states(source, 2 if first else 3)
        calls = ((x,), (x, first_state), (x[0],), (x[0], states(source)))
        for call in calls:
            torch.testing.assert_close(made(*call), source(*call))
            shapes = [t.shape for t in torch.utils._pytree.tree_leaves(made(*call))]
            told = made.result_shapes(*call)
            assert [t.shape for t in torch.utils._pytree.tree_leaves(told)] == shapes
        wanted = torch.autograd.grad(source(x, first_state)[0].square().sum(), source.weight_hh_l0)
        (got,) = torch.autograd.grad(made(x, first_state)[0].square().sum(), source.weight_hh_l0)
        torch.testing.assert_close(got, *wanted)  # the parameter itself is in both


def test_dropout_is_between_layers_and_in_training_only() -> None:
    source = nn.GRU(4, 4, 2, dropout=1.0)
    made, x = Recurrent(source), torch.randn(3, 2, 4)
    made.flatten_parameters()  # models call it before each forward pass
    (first,), second = made.cells[:1], made.cells[1]
    nothing = Recurrent(nn.GRU(4, 4))
    nothing.cells[0] = second
    torch.testing.assert_close(made(x)[0], nothing(torch.zeros(3, 2, 4))[0])
    assert not torch.allclose(made.eval()(x)[0], nothing(torch.zeros(3, 2, 4))[0])
    assert first.input.weight is source.weight_ih_l0


def test_packed_sequences_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="LSTM got a PackedSequence") as caught:
        Recurrent(nn.LSTM(4, 4))(pack_sequence([torch.randn(2, 4), torch.randn(1, 4)]))
    assert "padded" in str(caught.value.fix)


def test_every_place_is_replaced_once_and_others_say_why() -> None:
    class Other(nn.LSTM):
        def forward(self, *args: Any) -> Any:
            return super().forward(*args)[0]

    class Named(nn.LSTM):
        pass

    shared = nn.LSTM(4, 4)
    normed = nn.utils.parametrizations.weight_norm(nn.LSTM(4, 4), "weight_hh_l0")
    parts = [shared, shared, Other(4, 4), normed, nn.GRU(4, 4), nn.GRUCell(4, 4), Named(4, 4)]
    packed = {id(parts[4])}
    model, found = expand_recurrent(nn.ModuleList(parts), packed)
    assert model[0] is model[1]
    assert [type(m) for m in model][5:] == [RecurrentCell, Recurrent]
    assert list(found.replaced) == ["0", "1", "5", "6"]
    assert "Other computes something else" in found.left["2"]
    assert "parametrization" in found.left["3"]
    assert "pad them" in found.left["4"]
    assert model[4] is parts[4]
    alone, found = expand_recurrent(shared, ())
    assert isinstance(alone, Recurrent)
    assert found.replaced == {"": shared}
