"""The rules of placements on a graph that is neither ONNX nor FX."""

from __future__ import annotations

import pytest

from onnxq.analysis.placement_walk import PlacementWalk
from onnxq.operators.placement import MOVES, Placement, kinds

CONV_ADD = kinds("Conv Add")


class Words(PlacementWalk[str, str]):
    """Ops as words 'Kind:name', each with the names it reads; `x` enters, the last one leaves."""

    def __init__(self, text: str, placement: Placement) -> None:
        super().__init__(placement)
        self.read = {}
        for line in text.split(";"):
            op, *names = line.split()
            found = [*self.read, "x"]
            self.read[op] = [next(n for n in found if n.endswith(name)) for name in names]

    def ops(self) -> list[str]:
        return list(self.read)

    def kind(self, op: str) -> str | None:
        return op.partition(":")[0]

    def operands(self, op: str) -> list[str]:
        return self.read[op]

    def result(self, op: str) -> str:
        return op

    def producer(self, value: str) -> str | None:
        return value if value in self.read else None

    def consumers(self, value: str) -> list[str]:
        return [op for op, names in self.read.items() if value in names]

    def is_float(self, value: str) -> bool:
        return True

    def never_negative(self, value: str) -> bool:
        return value.startswith("Relu")

    def is_input(self, value: str) -> bool:
        return value == "x"

    def inputs(self) -> list[str]:
        return ["x"]

    def outputs(self) -> list[str]:
        return [self.ops()[-1]]

    def is_settled(self, value: str) -> bool:
        return not self.consumers(value)

    def reads_numbers(self, op: str) -> bool:
        return op.endswith("number")


BLOCK = "Conv:c x; Relu:r c; MaxPool:p r; Conv:d p; Add:s d r; Relu:y s"


def places(text: str, placement: Placement) -> list[tuple[str, ...]]:
    found = Words(text, placement).activations()
    return [tuple(name.rpartition(":")[2] for name in place.tensors) for place in found]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (Placement(inputs=CONV_ADD), ["x", "r", "d"]),
        (Placement(inputs=CONV_ADD, moves=MOVES - {"MaxPool"}), ["x", "r", "p", "d"]),
        (Placement(inputs=CONV_ADD, accumulated=kinds("Conv")), ["x", "r"]),
        (Placement(inputs=CONV_ADD, merged=frozenset({("Add", "Conv")})), ["x", "r"]),
        (Placement(inputs=CONV_ADD, untouched=frozenset({("Add", "Conv")})), ["x", "r"]),
        (Placement(inputs=CONV_ADD, unified=kinds("Add")), ["x", "r d"]),
        (Placement(inputs=kinds("Conv"), outputs=kinds("Add")), ["x", "r", "s"]),
        (
            Placement(inputs=kinds("Conv"), outputs=kinds("Add"), absorbed=kinds("Relu")),
            ["x", "r", "y"],
        ),
        (Placement(inputs=kinds("Tanh"), graph_inputs=True, graph_outputs=True), ["x", "y"]),
    ],
)
def test_each_rule(placement: Placement, expected: list[str]) -> None:
    assert places(BLOCK, placement) == [tuple(names.split()) for names in expected]


def test_numbers_keep_an_op_float_where_told() -> None:
    text = "Mul:number x; Mul:m number x"
    assert places(text, Placement(inputs=kinds("Mul"), tensors_only=True)) == [("x",), ("number",)]
    both = Placement(inputs=frozenset(), outputs=kinds("Mul"), tensors_only=True)
    assert places(text, both) == [("number",), ("m",)]


def test_a_place_tells_who_asked_and_whether_it_is_signed() -> None:
    first, second, third = Words(BLOCK, Placement(inputs=CONV_ADD, unsigned=True)).activations()
    assert (first.rule, first.asked_by) == ("Conv:c reads codes", ("Conv:c",))
    assert (second.unsigned, second.asked_by) == (True, ("Conv:d", "Add:s"))
    assert not third.unsigned


def test_long_chains_of_moves_are_looked_through_once() -> None:
    count = 3000
    chain = "; ".join(f"Reshape:{i}. {i - 1}." for i in range(1, count))
    walk = Words(f"Relu:0. x; {chain}; Conv:c {count - 1}.", Placement(inputs=kinds("Conv")))
    assert walk.sources(f"Reshape:{count - 1}.") == ("Relu:0.",)
