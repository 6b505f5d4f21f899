"""Large models run without copies of their weights, and compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.errors import OnnxqError
from onnxq.running import large_models, sessions
from onnxq.running.large_models import in_running_order, is_large, lean, written_out
from onnxq.running.ort_session import new_options
from onnxq.running.samples import samples
from onnxq.running.sessions import Kind
from tests.models.zoo import ZOO

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2] x) => (float[1, 2] y, float[2, 2] c2)
<int8[2, 2] w1 = {1, 2, 3, 4}, int8[2, 2] w2 = {5, 6, 7, 8}, float s = {0.5}>
{
    c1 = DequantizeLinear(w1, s)
    c2 = DequantizeLinear(w2, s)
    t2 = Transpose(c2)
    unread = Neg(c1)
    h = MatMul(x, c1)
    r = Relu(h)
    m = MatMul(r, t2)
    y = Add(m, s)
}
"""


def test_weights_are_computed_right_before_their_layers() -> None:
    model = onnx.parser.parse_model(TEXT)
    made = in_running_order(model)
    names = [node.output[0] for node in made.graph.node]
    assert names == ["c1", "unread", "h", "r", "c2", "t2", "m", "y"]
    assert [node.output[0] for node in model.graph.node][:2] == ["c1", "c2"]  # untouched
    assert in_running_order(made) == made


def test_a_weight_that_depends_on_an_input_waits_too() -> None:
    """As with the switches of quantizers: all weights could be computed at once."""
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (bool k, float[1, 2] x) => (float[1, 2] y)
    <float[2, 2] w1 = {1, 2, 3, 4}, float[2, 2] w2 = {5, 6, 7, 8}>
    {
        n1 = Neg(w1)
        n2 = Neg(w2)
        c1 = Where(k, w1, n1)
        c2 = Where(k, w2, n2)
        h1 = MatMul(x, c1)
        h2 = Relu(h1)
        h3 = Sigmoid(h2)
        y = MatMul(h3, c2)
    }
    """)
    names = [node.output[0] for node in in_running_order(model).graph.node]
    assert names == ["n1", "c1", "h1", "h2", "h3", "n2", "c2", "y"]


def test_a_body_reads_what_stands_before_it() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (bool k, float[2] x) => (float[2] y) <float[2] a = {1, 2}>
    {
        b = Neg(a)
        n = Relu(x)
        y = If (k) <
            then_branch = t () => (float[2] u) { u = Add(n, b) },
            else_branch = e () => (float[2] v) { v = Identity(n) }
        >
    }
    """)
    assert [n.output[0] for n in in_running_order(model).graph.node] == ["b", "n", "y"]


def test_large_is_a_number_of_weights_in_files() -> None:
    def model(dims: list[int], kind: int, location: int) -> onnx.ModelProto:
        tensor = onnx.TensorProto(dims=dims, data_type=kind, data_location=location)
        return onnx.ModelProto(graph=onnx.GraphProto(initializer=[tensor, tensor]))

    inside, outside = onnx.TensorProto.DEFAULT, onnx.TensorProto.EXTERNAL
    for kind in (onnx.TensorProto.FLOAT, onnx.TensorProto.INT8):
        assert is_large(model([4096, 4096], kind, outside))
        assert not is_large(model([4096, 4095], kind, outside))
        assert not is_large(model([4096, 4096], kind, inside))


def test_a_written_graph_has_its_weights_in_files_and_in_order(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1, 64] x) => (float[1, 64] y) <float s = {0.01}>
    {
        c1 = DequantizeLinear(w1, s)
        c2 = DequantizeLinear(w2, s)
        h = MatMul(x, c1)
        r = Relu(h)
        y = MatMul(r, c2)
    }
    """)
    rng = np.random.default_rng(0)
    for name in ("w1", "w2"):
        values = rng.integers(-127, 128, (64, 64)).astype(np.int8)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    options = lean(new_options("ORT_ENABLE_ALL", {"session.x64quantprecision": "1"}))
    message = written_out(model.SerializeToString(), "it", options, tmp_path, weights=True)
    made = onnx.ModelProto.FromString(message)
    stored = [t for t in made.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    assert sum(len(t.dims) == 2 for t in stored) == 2
    assert (tmp_path / "optimized.bin").stat().st_size >= 2 * 64 * 64
    operators = [node.op_type for node in made.graph.node]
    assert [at for at, op in enumerate(operators) if op == "DequantizeLinear"] == [0, 3]


@pytest.mark.parametrize("kind", ["reference", "deployed", "shipped"])
@pytest.mark.parametrize("name", sorted(ZOO))
def test_the_outputs_are_the_same(
    name: str, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(ZOO[name](), path, save_as_external_data=True, size_threshold=256)
    try:
        plain = sessions.session(path, kind)
    except OnnxqError as refused:
        monkeypatch.setattr(large_models, "LARGE", 0)
        with pytest.raises(type(refused)):
            sessions.session(path, kind)
        return
    # Sums of unpacked weights are rounded differently. The kernel for packed weights of 4 bits
    # also rounds what it multiplies them with to 8 bits.
    limit = 0.01 if name == "qdq_uint4" and kind != "reference" else 1e-5
    monkeypatch.setattr(large_models, "LARGE", 0)
    other = sessions.session(path, kind)
    assert (other.inputs, other.outputs, other.kind) == (plain.inputs, plain.outputs, plain.kind)
    for feed in samples(plain, count=2):
        wanted, made = plain.run(feed), other.run(feed)
        for output in wanted:
            np.testing.assert_allclose(made[output], wanted[output], rtol=limit, atol=limit)
