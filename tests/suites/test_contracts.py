"""What every pass promises, on every small model and on random graphs.

Idempotent: a second run rewrites nothing. Signature kept: inputs and outputs have the same names,
types and order. Neutral where the pass says `exact`. Reasons are never empty, metadata stays, the
caller's model is not touched, and the result is valid ONNX that runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import ClassVar

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import helper

from onnxq.canonical import fake_quantize
from onnxq.errors import PassError
from onnxq.graph import Model
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass, Trace
from onnxq.pipeline import Pipeline, Result
from onnxq.running import sessions
from tests.models.build import parse
from tests.models.dialect_functions import runnable
from tests.models.prepared import PASSES, Forms
from tests.models.strategies import graphs, qdq_graphs
from tests.models.zoo import ZOO, inputs

WRITERS = {name for name in PASSES if name.startswith("to-")} - {"to-qdq"}
"""Passes that write a dialect and refuse, in one error, what it cannot express."""
MOVES_TIES = {"to-qonnx", "to-openvino"}
"""Writers of dialects that add the zero point before rounding: values half way between two codes
get the other neighbour there where it is odd."""


Values = dict[str, np.ndarray]


class Subject(Forms):
    """A model in the forms that passes are given, and the results of each file made from it."""

    def __init__(self, proto: onnx.ModelProto, seeds: Iterable[int]) -> None:
        super().__init__(proto)
        self.metadata = sorted((p.key, p.value) for p in proto.metadata_props)
        self.feeds = [inputs(proto, seed) for seed in seeds]
        self._results: dict[bytes, list[Values]] = {}

    def results(self, model: Model) -> list[Values]:
        """All outputs for each of the feeds; files of the same bytes are checked and run once."""
        proto = runnable(model)
        key = hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()
        if key not in self._results:
            onnx.checker.check_model(proto)
            session = sessions.reference(proto)
            self._results[key] = [session.run(feeds) for feeds in self.feeds]
        return self._results[key]


def signature(proto: onnx.ModelProto) -> list[tuple[str, bytes]]:
    """Inputs and outputs with names and types.

    Before IR 4 every initializer had to be listed as an input as well; those are no part of it.
    """
    constants = {t.name for t in proto.graph.initializer} if proto.ir_version < 4 else set()
    inputs_ = [i for i in proto.graph.input if i.name not in constants]
    return [
        (kind, info.SerializeToString(deterministic=True))
        for kind, infos in (("in", inputs_), ("out", proto.graph.output))
        for info in infos
    ]


def check_contract(subject: Subject, step: Pass) -> Result | None:
    model = subject.prepared(step)
    before = model.to_proto()
    unchanged = before.SerializeToString(deterministic=True)
    try:
        first = Pipeline(step).run(model)
    except PassError:
        if step.name not in WRITERS:
            raise
        return None
    assert model.to_proto().SerializeToString(deterministic=True) == unchanged, (
        "caller's model changed"
    )
    assert all(s.where and s.reason for t in first.traces for s in t.skips), "a skip without reason"
    assert all(first.traces[0].rewrites), "a rewrite without a place"
    again = Pipeline(step).run(first.model)
    assert again.traces[0].rewrites == [], "not idempotent"
    after = first.model.to_proto()
    assert subject.metadata == sorted(
        (p.key, p.value) for p in after.metadata_props if not p.key.startswith("onnxq.")
    ), "metadata changed"
    old = subject.results(model)
    if after.SerializeToString(deterministic=True) == unchanged:
        return first
    assert signature(after) == signature(before), "signature changed"
    for feeds, wants, gots in zip(subject.feeds, old, subject.results(first.model), strict=True):
        assert list(gots) == list(wants)
        for name, want in wants.items():
            got = gots[name]
            assert got.dtype == want.dtype
            assert got.shape == want.shape
            if step.exact:
                close(got, want, name)
        if step.name in MOVES_TIES:
            only_ties_move(model, first.model, feeds)
    return first


def only_ties_move(model: Model, written: Model, feeds: dict[str, np.ndarray]) -> None:
    """Each quantizer alone: what it makes is one step off at most, and only next to a tie.

    Where one value moves, so does everything computed from it; so quantizers are given what they
    really read, and the numbers behind them are not compared.
    """
    quantizers = [n for n in model.graph.nodes if n.op == fake_quantize.OP]
    made = {t.name for n in written.graph.nodes for t in n.outputs}
    taps = [
        (node.inputs[0].name, node.outputs[0].name, fake_quantize.params_of(node))
        for node in quantizers
        if node.outputs[0].name in made and not is_constant(node.inputs[0])
    ]
    names = {name for x, y, _ in taps for name in (x, y)} - set(feeds)
    values = {**feeds, **sessions.reference(runnable(written), names).run(feeds)}
    for x, y, params in taps:
        scale, _ = params.broadcast(values[x].shape)
        off = np.abs(values[y] - params.fake(values[x])) / scale
        assert np.all(off <= 1.05), y  # fractions of a step are float arithmetic
        moved = (values[x] / scale)[off > 0.05]
        assert np.all(np.abs(np.abs(moved - np.rint(moved)) - 0.5) < 0.02), y


def close(got: np.ndarray, want: np.ndarray, name: str) -> None:
    if want.dtype.kind not in "f" or want.size == 0:
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    bound = 2e-3 if want.dtype == np.float16 else 1e-5
    scale = np.nanmax(np.abs(want.astype(np.float64))) or 1.0
    error = np.nanmax(np.abs(got.astype(np.float64) - want.astype(np.float64))) / scale
    assert error <= bound, f"{name}: relative error {error}"


def check_contracts(subject: Subject, names: Iterable[str]) -> None:
    """The contracts of all these passes; a failure says which of them is broken."""
    for name in names:
        try:
            check_contract(subject, PASSES[name]())
        except Exception as error:
            error.add_note(f"the pass is {name}")
            raise


@pytest.mark.parametrize("model", sorted(ZOO))
def test_contracts_on_the_zoo(model: str) -> None:
    check_contracts(Subject(ZOO[model](), seeds=(0, 1)), sorted(PASSES))


EXAMPLES = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
"""80 float and 80 quantized graphs, each given to every pass (in two tests, for two cores)."""


@pytest.mark.parametrize("half", [0, 1])
@EXAMPLES
@given(proto=graphs())
def test_contract_on_random_float_graphs(half: int, proto: onnx.ModelProto) -> None:
    check_contracts(Subject(proto, seeds=(0,)), sorted(PASSES)[half::2])


@pytest.mark.parametrize("half", [0, 1])
@EXAMPLES
@given(proto=qdq_graphs())
def test_contract_on_random_quantized_graphs(half: int, proto: onnx.ModelProto) -> None:
    check_contracts(Subject(proto, seeds=(0,)), sorted(PASSES)[half::2])


# -- the contracts can be broken --------------------------------------------------------------


def _changes_numbers_silently(model: Model, trace: Trace) -> None:
    for node in model.nodes("Relu"):
        node.op = "Neg"


def _never_ends(model: Model, trace: Trace) -> None:
    trace.rewrote("r")


def _gives_no_reason(model: Model, trace: Trace) -> None:
    trace.skip("r", "")


def _gives_no_place(model: Model, trace: Trace) -> None:
    trace.rewrote("")


def _renames_an_output(model: Model, trace: Trace) -> None:
    model.graph.outputs[0].name = "other"


def _loses_metadata(model: Model, trace: Trace) -> None:
    del model.header.metadata_props[:]


def _writes_what_no_runtime_knows(model: Model, trace: Trace) -> None:
    for node in model.nodes("Relu"):
        node.op = "Rellu"


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (_changes_numbers_silently, "relative error"),
        (_never_ends, "not idempotent"),
        (_gives_no_reason, "a skip without reason"),
        (_gives_no_place, "a rewrite without a place"),
        (_renames_an_output, "signature changed"),
        (_loses_metadata, "metadata changed"),
        (_writes_what_no_runtime_knows, "Rellu"),
    ],
)
def test_a_broken_contract_is_seen(act: Callable[[Model, Trace], None], said: str) -> None:
    class Broken(Pass):
        name: ClassVar[str] = "broken"
        exact: ClassVar[bool] = True

        def run(self, model: Model, trace: Trace) -> None:
            act(model, trace)

    model = parse("g (float[4] x) => (float[4] y) { r = Relu(x)  y = Add(r, x) }").to_proto()
    helper.set_model_props(model, {"author": "a tool"})
    with pytest.raises(Exception, match=said):
        check_contract(Subject(model, seeds=(0,)), Broken())
