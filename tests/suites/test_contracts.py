"""What every pass promises, on every small model and on random graphs.

Idempotent: a second run rewrites nothing. Signature kept: inputs and outputs have the same names,
types and order. Neutral where the pass says `exact`. Reasons are never empty, metadata stays, the
caller's model is not touched, and the result is valid ONNX that runs.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq import discovery
from onnxq.canonical import fake_quantize
from onnxq.errors import PassError
from onnxq.graph import Model, from_proto
from onnxq.graph.constants import is_constant
from onnxq.pass_ import Pass
from onnxq.pipeline import Pipeline, Result
from onnxq.reading import READERS
from onnxq.running import sessions
from tests.models.dialect_functions import runnable
from tests.models.strategies import graphs, qdq_graphs
from tests.models.zoo import ZOO, inputs

PASSES = {name: cls for name, cls in discovery.passes().items() if isinstance(cls, type)}
WRITERS = {name for name in PASSES if name.startswith("to-")} - {"to-qdq"}
"""Passes that write a dialect and refuse, in one error, what it cannot express."""
MOVES_TIES = {"to-qonnx", "to-openvino"}
"""Writers of dialects that add the zero point before rounding: values half way between two codes
get the other neighbour there where it is odd."""
READ = tuple(PASSES[name]() for name in READERS)


def prepared(proto: onnx.ModelProto, step: Pass) -> Model:
    """The model as a pipeline would hand it to `step`: canonical where the pass asks for that."""
    model = from_proto(proto)
    if step.needs_canonical:
        model = Pipeline(*READ).run(model).model
    if step.name == "apply-qparams":
        collect, remove = PASSES["collect-qparams"](), PASSES["remove-fake-quant"]()
        model = Pipeline(*READ, collect, remove).run(model).model
    return model


def signature(model: Model) -> list[tuple[str, bytes]]:
    """Inputs and outputs with names and types.

    Before IR 4 every initializer had to be listed as an input as well; those are no part of it.
    """
    proto = model.to_proto()
    constants = {t.name for t in proto.graph.initializer} if model.ir_version < 4 else set()
    inputs_ = [i for i in proto.graph.input if i.name not in constants]
    return [
        (kind, info.SerializeToString(deterministic=True))
        for kind, infos in (("in", inputs_), ("out", proto.graph.output))
        for info in infos
    ]


def check_contract(
    proto: onnx.ModelProto, step: Pass, seeds: tuple[int, ...] = (0,)
) -> Result | None:
    model = prepared(proto, step)
    before = model.to_proto().SerializeToString(deterministic=True)
    try:
        first = Pipeline(step).run(model)
    except PassError:
        if step.name not in WRITERS:
            raise
        return None
    assert model.to_proto().SerializeToString(deterministic=True) == before, (
        "caller's model changed"
    )
    assert all(s.where and s.reason for t in first.traces for s in t.skips)
    assert all(first.traces[0].rewrites), "a rewrite without a place"
    assert signature(first.model) == signature(model)
    again = Pipeline(step).run(first.model)
    assert again.traces[0].rewrites == [], "not idempotent"
    after = first.model.to_proto()
    assert sorted((p.key, p.value) for p in proto.metadata_props) == sorted(
        (p.key, p.value) for p in after.metadata_props if not p.key.startswith("onnxq.")
    )
    onnx.checker.check_model(runnable(after))
    for seed in seeds:
        feeds = inputs(proto, seed)
        old = sessions.reference(runnable(model)).run(feeds)
        new = sessions.reference(runnable(first.model)).run(feeds)
        assert list(old) == list(new)
        for name, want in old.items():
            got = new[name]
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


@pytest.mark.parametrize("model", sorted(ZOO))
@pytest.mark.parametrize("name", sorted(PASSES))
def test_contract_on_the_zoo(name: str, model: str) -> None:
    check_contract(ZOO[model](), PASSES[name](), seeds=(0, 1))


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
    for name in sorted(PASSES)[half::2]:
        check_contract(proto, PASSES[name]())


@pytest.mark.parametrize("half", [0, 1])
@EXAMPLES
@given(proto=qdq_graphs())
def test_contract_on_random_quantized_graphs(half: int, proto: onnx.ModelProto) -> None:
    for name in sorted(PASSES)[half::2]:
        check_contract(proto, PASSES[name]())
