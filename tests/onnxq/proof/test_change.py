"""A lossy change says what it changed, in a line per pass."""

from onnxq.pass_ import Trace
from onnxq.proof.change import Change
from tests.models.build import parse


def test_some_places_of_every_pass_are_told() -> None:
    model = parse("g (float[4] x) => (float[4] y) { y = Neg(x) }")
    few, many = Trace("round-weights"), Trace("approximate-grids")
    few.rewrote("'w'")
    for number in range(7):
        many.rewrote(f"'t{number}'")
    told = Change(model, model, (few, many)).notes()
    assert told[0] == "round-weights changes what the model computes: 'w'"
    assert told[1].endswith("'t0'; 't1'; 't2'; 't3'; 't4'; and 2 more")
