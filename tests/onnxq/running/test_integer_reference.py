from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.errors import InvalidModelError, VerifyError
from onnxq.graph import from_proto, save
from onnxq.proof.verify import verify
from onnxq.running import sessions
from onnxq.running.integer_reference import IntegerModel, holds_integer_operators
from tests.models.foreign_files import FOLDER as FIXTURES
from tests.models.zoo import ZOO, inputs

FILES = sorted(p for p in FIXTURES.glob("*/*qop*/model.onnx"))

SATURATING = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,64] x) => (float[1,2] y)
<float s = {1}, uint8 z = {0}, float ws = {1}, int8 wz = {0}, float t = {4096}, uint8 u = {3},
 int64[2] shape = {64, 2}, float[1] ones = {1}> {
    q = QuantizeLinear(x, s, z)
    w = Constant <value = int8[1,1] {127}> ()
    full = Expand(w, shape)
    c = QLinearMatMul(q, s, z, full, ws, wz, t, u)
    r = DequantizeLinear(c, t, u)
    y = Mul(r, ones)
}"""


def run(
    model: sessions.ModelSource, feeds: dict[str, np.ndarray], only: list[str] | None = None
) -> dict[str, np.ndarray]:
    opened = sessions.open_model(model)
    wanted = [o.name for o in opened.proto.graph.output] if only is None else only
    return IntegerModel(opened, wanted, sessions.reference).run(feeds, wanted)


def test_sums_beyond_16_bits_are_exact() -> None:
    feeds = {"x": np.full((1, 64), 255, np.float32)}
    want = np.rint(np.float32(64 * 255 * 127) / 4096) + 3
    assert want > 255  # saturates the result, by right
    (got,) = run(onnx.parser.parse_model(SATURATING), feeds).values()
    np.testing.assert_array_equal(got, np.full((1, 2), (255 - 3) * 4096))
    feeds = {"x": np.full((1, 64), 100, np.float32)}
    (got,) = run(onnx.parser.parse_model(SATURATING), feeds).values()
    np.testing.assert_array_equal(got, np.full((1, 2), np.rint(64 * 100 * 127 / 4096) * 4096))


@pytest.mark.parametrize("name", [n for n in sorted(ZOO) if n.startswith("qop_")])
def test_models_whose_products_cannot_saturate_agree_with_onnxruntime(name: str) -> None:
    import onnxruntime as ort

    proto = ZOO[name]()
    feeds = inputs(proto)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for got, want in zip(run(proto, feeds).values(), session.run(None, feeds), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_the_reference_session_is_the_integer_evaluation() -> None:
    session = sessions.reference(onnx.parser.parse_model(SATURATING), taps=["c"])
    x = np.full((1, 64), 100, np.float32)
    made = session.run({"x": x})
    assert list(made) == ["y", "c"]
    assert made["c"].dtype == np.uint8
    np.testing.assert_array_equal(made["c"], np.full((1, 2), np.rint(64 * 100 * 127 / 4096) + 3))


def test_verify_notes_no_saturation_where_the_evaluation_is_exact() -> None:
    proto = onnx.parser.parse_model(SATURATING)
    report = verify(proto, proto)
    assert report.passed
    assert not any("saturate" in note for note in report.notes)
    assert sessions.integer_ops(proto, "shipped")
    assert not sessions.integer_ops(proto, "reference")


SIZES_OF_A_SHAPE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,n,4] x) => (float[1,2,a,b] y)
<float s = {0.1}, uint8 z = {128}, int8[2,2,1,1] w = {1, 2, 3, 4}, int8 wz = {0},
 int64[1] zero = {0}, int64[1] two = {2}, int64[2] size = {6, 6}> {
    shape = Shape(x)
    outer = Slice(shape, zero, two)
    sizes = Concat <axis = 0> (outer, size)
    q = QuantizeLinear(x, s, z)
    c = QLinearConv(q, s, z, w, s, wz, s, z)
    r = DequantizeLinear(c, s, z)
    y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
                nearest_mode = "floor"> (r, , , sizes)
}"""


def test_sizes_made_in_front_of_an_integer_operator_reach_the_node_behind_it() -> None:
    session = sessions.reference(onnx.parser.parse_model(SIZES_OF_A_SHAPE), taps=["r"])
    for height in (3, 5):
        x = np.random.default_rng(0).standard_normal((1, 2, height, 4), np.float32)
        made = session.run({"x": x})
        rows, columns = (np.arange(6) * n // 6 for n in (height, 4))
        np.testing.assert_array_equal(made["y"], made["r"][:, :, rows][:, :, :, columns])


def test_intermediate_tensors_can_be_asked_for() -> None:
    proto = ZOO["qop_contrib"]()
    codes = next(n.output[0] for n in proto.graph.node if n.op_type == "QLinearAdd")
    made = run(proto, inputs(proto), [codes])
    assert made[codes].dtype == np.uint8


def test_nodes_in_any_order() -> None:
    proto = ZOO["qop_contrib"]()
    want = run(proto, inputs(proto))
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    got = run(proto, inputs(proto))
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_weights_may_lie_beside_the_file(tmp_path: Path) -> None:
    proto = ZOO["qop_conv_matmul"]()
    save(from_proto(proto), tmp_path / "model.onnx", external_data=True)
    want = list(run(proto, inputs(proto)).values())
    got = list(sessions.reference(tmp_path / "model.onnx").run(inputs(proto)).values())
    np.testing.assert_array_equal(got, want)


def test_bodies_read_what_lies_around_them() -> None:
    """The codes are made by an integer operator, so the If runs in a session of its own."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (uint8[2,2] x, bool flag) => (float[2,2] y)
    <float s = {0.5}, uint8 z = {1}, uint8[2,2] w = {1, 2, 3, 4}> {
        c = QLinearMatMul(x, s, z, w, s, z, s, z)
        y = If (flag) <
            then_branch = t () => (float[2,2] a) { a = DequantizeLinear(c, s, z) },
            else_branch = e () => (float[2,2] b) { d = DequantizeLinear(c, s, z)  b = Neg(d) }
        >
    }"""
    proto = onnx.parser.parse_model(text)
    x = np.array([[3, 4], [5, 6]], np.uint8)
    one = run(proto, {"x": x, "flag": np.asarray(True)})["y"]
    other = run(proto, {"x": x, "flag": np.asarray(False)})["y"]
    product = (x.astype(float) - 1) @ np.array([[0, 1], [2, 3]]) / 4
    np.testing.assert_array_equal(one, (np.rint(product / 0.5)) * 0.5)
    np.testing.assert_array_equal(other, -one)


def test_float_models_have_no_integer_operators() -> None:
    assert not holds_integer_operators(ZOO["qdq_residual"]())
    assert holds_integer_operators(ZOO["qop_contrib"]())


def test_what_is_missing_is_named() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (uint8[2,2] x) => (int32[2,2] y) { [sums] y = MatMulInteger(x, x) }"""
    with pytest.raises(VerifyError, match="tensor 'x', read by node 'sums'"):
        run(onnx.parser.parse_model(text), {})


def test_a_cycle_is_refused() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (uint8[2,2] x) => (uint8[2,2] y) <float s = {1}, uint8 z = {0}> {
        y = QLinearMatMul(x, s, z, y, s, z, s, z)
    }"""
    with pytest.raises(InvalidModelError, match="cycle"):
        run(onnx.parser.parse_model(text), {"x": np.zeros((2, 2), np.uint8)})


@pytest.mark.skipif(not FILES, reason="no ../shared/fixtures beside the repository")
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.parent.name}/{p.parent.name}")
def test_files_of_other_tools_are_as_near_to_float_as_their_bits_allow(path: Path) -> None:
    """8 bits cost these models a few hundredths of their range; saturated sums cost half of it."""
    folder = path.parent.parent
    data = np.load(folder / "test.npz")["x"]
    name = sessions.reference(path).inputs[0].name
    plain = sessions.reference(folder / "float.onnx")
    for i in range(len(data)):
        (got,) = run(path, {name: data[i : i + 1]}).values()
        (want,) = plain.run({name: data[i : i + 1]}).values()
        assert np.abs(got - want).max() <= 0.05 * np.abs(want).max()
