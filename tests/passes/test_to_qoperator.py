"""Canonical to integer operators and back: the same table, and numbers within a step."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.graph import Model, from_proto, load
from onnxq.operators.integer_operators import QOPERATORS
from onnxq.proof.verify import verify
from onnxq.running import sessions
from passes.read_qdq import ReadQdq
from passes.to_qdq import ToQdq
from passes.to_qoperator import ToQoperator
from tests.checks.integers import canonical, rows_by_tensor
from tests.models.build import apply, bit_equal, ops
from tests.models.canonical import Canonical, canonical_models
from tests.models.foreign_files import FOLDER as FIXTURES
from tests.models.strategies import qdq_graphs
from tests.models.zoo import CNN, QDQ, ZOO, inputs

EXAMPLES = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)

STORED_TWICE = ("qdq_in_if", "qdq_shared_weight_four_scales")
"""Models that quantize one weight in several ways."""


def grids(model: Model) -> dict[object, object]:
    """The rows without biases, which may have become int32, and without names of readers.

    A row's reader is named after what it makes, which is another tensor where Relu has gone into
    the operator in front of it.
    """
    rows = rows_by_tensor(model, biases=False).values()
    return {(r.tensor, str(r.role), r.grid_key(), str(r.qtype)): len(r.readers or ()) for r in rows}


def assert_round_trip(model: Model, feeds: dict[str, np.ndarray]) -> Model:
    """Write, read back: the table that QDQ gives back, too, and a file that runs.

    Not always that of the model: a weight with several quantizers is stored once for each.
    """
    written, trace = apply(model, ToQoperator())
    assert not written.nodes(FAKE_QUANTIZE)
    assert all(s.reason for s in trace.skips)
    back = canonical(written)
    assert grids(back) == grids(canonical(apply(model, ToQdq())[0]))
    made = sessions.reference(written).run(feeds)
    assert list(made) == [o.name for o in model.graph.outputs]
    return back


@pytest.mark.parametrize("name", sorted(QDQ))
def test_tables_survive_on_the_zoo(name: str) -> None:
    proto = ZOO[name]()
    model = canonical(from_proto(proto))
    back = assert_round_trip(model, inputs(proto))
    if name not in STORED_TWICE:
        assert grids(back) == grids(model)


@EXAMPLES
@given(proto=qdq_graphs())
def test_tables_survive_on_random_quantized_graphs(proto: onnx.ModelProto) -> None:
    assert_round_trip(apply(from_proto(proto), ReadQdq())[0], inputs(proto))


@EXAMPLES
@given(made=canonical_models())
def test_tables_survive_on_random_canonical_graphs(made: Canonical) -> None:
    assert_round_trip(made.model, inputs(made.proto))


@pytest.mark.parametrize("name", [n for n in sorted(ZOO) if n.startswith("qop_")])
def test_integer_operators_come_back_bit_for_bit(name: str) -> None:
    """Scales are powers of two: there is nothing to round."""
    proto = ZOO[name]()
    written, _ = apply(canonical(from_proto(proto)), ToQoperator())
    feeds = inputs(proto)
    want = sessions.reference(proto).run(feeds)
    assert bit_equal(sessions.reference(written).run(feeds).values(), want.values())


@pytest.mark.parametrize("name", sorted(CNN))
def test_convolutions_of_one_type_become_integer_operators(name: str) -> None:
    model = apply(from_proto(ZOO[name]()), ReadQdq())[0]
    written, trace = apply(model, ToQoperator())
    for node in written.nodes("Conv"):
        assert any(f"'{node.name}'" in s.where for s in trace.skips), "a Conv left without reason"


def test_only_onnx_own_operators_without_contrib() -> None:
    model = canonical(from_proto(ZOO["qop_contrib"]()))
    written, _ = apply(model, ToQoperator(contrib=False))
    found = set(ops(written)) & set(QOPERATORS)
    assert found == {"QLinearConv"}
    assert "com.microsoft" not in {n.domain for n in written.to_proto().graph.node}


FILES = [
    *("A1/ort-qdq-u8s8", "A1/ort-qdq-s8s8-pc", "A1/aimet-w8a8-htp73", "A1/quark-vint8"),
    *("A2/ort-qdq-u8s8", "A2/ort-qdq-s8s8-pc", "A2/onnxsim-full-qdq", "A1/ort-qop-u8s8"),
    *("A1/torch-ao-convertfx-x86-ts", "A1/brevitas-qcdq-int8", "A1/mqbench-head-snpe"),
]


@pytest.mark.skipif(not FIXTURES.exists(), reason="no ../shared/fixtures beside the repository")
@pytest.mark.parametrize("name", FILES)
def test_files_of_other_tools_come_back_within_a_step(name: str) -> None:
    model = canonical(load(FIXTURES / name / "model.onnx"))
    written, _ = apply(model, ToQoperator())
    assert set(ops(written)) & set(QOPERATORS)
    back = canonical(written)
    assert grids(back) == grids(model)
    x = np.load(FIXTURES / name[:2] / "test.npz")["x"]
    source = sessions.reference(model).inputs[0].name
    data = [{source: x[i : i + 1]} for i in range(len(x))]
    # A float bias is rounded to int32 on the way out, on the way back nothing but ties can differ.
    for one, other, moved in ((model, written, 1.0), (written, back, 0.05)):
        report = verify(one, other, data, max_steps=1.0, max_moved=moved)
        assert report.passed, report.to_json()
