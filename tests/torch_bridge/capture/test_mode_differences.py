"""One graph of two: equal, different in a flag, or not to be reconciled."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch_bridge needs torch")

from torch import fx, nn  # noqa: E402

from torch_bridge.capture.argument_checks import TrainingFlag  # noqa: E402
from torch_bridge.capture.mode_differences import FLAG, Untraceable, add_flags, reconcile  # noqa: E402


def graph(*values: object, op: object = torch.add) -> tuple[fx.Graph, dict[str, list[str]]]:
    made = fx.Graph()
    x = made.placeholder("x")
    node = made.call_function(op, (x, *values), {"inside": [1, values]})
    node.meta["onnxq_owner"] = "part"
    made.output(node)
    return made, {"": ["calls part"], "part": [f"call_function {op}"]}


def test_one_graph_alone() -> None:
    only = graph(1)
    assert reconcile(only) is only[0]


def test_equal_graphs() -> None:
    first = graph(1, slice(None, 2), None, "a")
    assert reconcile(first, graph(1, slice(None, 2), None, "a")) is first[0]
    assert not any(n.op == "call_module" for n in first[0].nodes)


def test_a_flag_is_read_from_the_mode_wherever_it_stands() -> None:
    made = reconcile(graph(True, 2), graph(False, 2))
    root = nn.Module()
    root.part = nn.Module().eval()
    add_flags(root, made)
    flag = root.get_submodule(f"part.{FLAG}")
    assert isinstance(flag, TrainingFlag)
    assert not flag.training
    (call,) = (n for n in made.nodes if n.op == "call_module")
    (node,) = (n for n in made.nodes if n.op == "call_function")
    assert node.args[1] is call
    assert node.kwargs["inside"][1][0] is call


@pytest.mark.parametrize("values", [(False, True), (0.1, 0.0)])
def test_a_number_that_follows_the_mode(values: tuple) -> None:
    made = reconcile(graph(values[0]), graph(values[1]))
    root = nn.Module()
    root.part = nn.Module()
    add_flags(root, made)
    (call,) = (n for n in made.nodes if n.op == "call_module")
    value = root.get_submodule(str(call.target))
    assert (value.train()(), value.eval()()) == values


@pytest.mark.parametrize(
    "others",
    [
        (graph(1), graph(2)),
        (graph(1), graph(1.0)),
        (graph(slice(0, 1)), graph(slice(0, 2))),
        (graph(1), graph(1, op=torch.sub)),
    ],
)
def test_other_differences_name_the_module(others: tuple) -> None:
    with pytest.raises(Untraceable) as caught:
        reconcile(*others)
    assert caught.value.path == "part"


def test_a_module_that_runs_in_one_mode_only_is_not_to_blame() -> None:
    first, events = graph(1)
    with pytest.raises(Untraceable) as caught:
        reconcile((first, {**events, "": ["calls part", "calls extra"], "extra": []}), graph(1))
    assert caught.value.path == ""
