"""The three sessions, taps, external data, types numpy lacks, and what errors say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxq.errors import InvalidModelError, LoadError, UnsupportedModelError, VerifyError
from onnxq.graph import from_proto
from onnxq.running import sessions
from tests.checks.optimized import optimized_ops
from tests.models.build import bit_equal
from tests.models.foreign_files import FOLDER as FIXTURES
from tests.models.zoo import ZOO, inputs

CHAIN = """
<ir_version: 8, opset_import: ["": 17]>
chain (float[N, 3] x) => (float[N, 2] y)
<float[3, 2] w = {1, -2, 3, -4, 5, -6}>
{
    [mm] m = MatMul(x, w)
    [act] y = Relu(m)
}
"""
X = np.array([[1, 2, 3], [-1, 0, 1]], np.float32)
W = np.array([[1, -2], [3, -4], [5, -6]], np.float32)


def chain() -> onnx.ModelProto:
    model = parser.parse_model(CHAIN)
    # Raw bytes: onnx moves no other form to external data.
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(W, "w"))
    return model


def saved(folder: Path, model: onnx.ModelProto, name: str = "m.onnx", **options: object) -> Path:
    path = folder / name
    onnx.save(model, path, **options)
    return path


def test_importing_the_module_does_not_load_onnxruntime() -> None:
    code = (
        "import onnxq.running.sessions, onnxq.running.samples, onnxq.proof.verify, sys; "
        "assert 'onnxruntime' not in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize("kind", ["reference", "deployed", "shipped"])
@pytest.mark.parametrize("form", ["path", "str", "proto", "model"])
def test_every_session_runs_every_form_of_model(kind: str, form: str, tmp_path: Path) -> None:
    path = saved(tmp_path, chain())
    source = {"path": path, "str": str(path), "proto": chain(), "model": from_proto(chain())}[form]
    session = sessions.session(source, kind, taps=["m"])
    assert session.kind == kind
    assert session.note == ""
    assert [(i.name, i.shape, i.dtype) for i in session.inputs] == [
        ("x", ("N", 3), np.dtype(np.float32))
    ]
    values = session.run({"x": X})
    assert list(values) == ["y", "m"]
    np.testing.assert_array_equal(values["m"], X @ W)
    np.testing.assert_array_equal(values["y"], np.maximum(X @ W, 0))
    assert list(session.run({"x": X}, only=["m"])) == ["m"]


def test_taps_leave_the_callers_model_as_it_was() -> None:
    model = chain()
    before = model.SerializeToString()
    sessions.reference(model, taps=["m", "y", "m"])
    assert model.SerializeToString() == before


def test_a_tap_that_does_not_exist_is_named_with_near_matches() -> None:
    with pytest.raises(VerifyError, match="no tensor 'mm_out'"):
        sessions.reference(chain(), taps=["mm_out"])


@pytest.mark.parametrize("taps", [(), ("m",)])
def test_external_data_is_found_beside_the_file(
    taps: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = saved(folder, chain(), save_as_external_data=True, location="w.bin", size_threshold=0)
    before = sorted(folder.iterdir())
    assert before == [path, folder / "w.bin"]
    monkeypatch.chdir(tmp_path)
    values = sessions.reference(path.relative_to(tmp_path), taps).run({"x": X})
    np.testing.assert_array_equal(values["y"], np.maximum(X @ W, 0))
    assert set(values) == {"y", *taps}
    assert sorted(folder.iterdir()) == before  # nothing is written next to the user's files


def test_missing_external_data_is_a_load_error(tmp_path: Path) -> None:
    path = saved(tmp_path, chain(), save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    for session in (sessions.reference, sessions.deployed):
        with pytest.raises(LoadError, match="w"):
            session(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.onnx", None, "no such file"),
        ("garbage.onnx", b"not a model", "garbage.onnx"),
        ("empty.onnx", b"", "empty.onnx"),
    ],
)
@pytest.mark.parametrize("taps", [(), ("y",)])
def test_a_file_that_is_no_model_is_a_load_error(
    name: str, content: bytes | None, message: str, taps: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError, match=message if not taps else name):
        sessions.reference(path, taps)


def test_a_truncated_file_is_a_load_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(chain().SerializeToString()[:-20])
    with pytest.raises(LoadError, match=r"cut\.onnx"):
        sessions.reference(path)


def test_an_unknown_operator_is_named() -> None:
    model = chain()
    model.graph.node[1].op_type = "Reluu"
    with pytest.raises(UnsupportedModelError, match=r"act.*Reluu") as caught:
        sessions.reference(model)
    assert "\n" not in caught.value.what
    assert "ONNXRuntimeError" not in caught.value.what


def with_double_weight() -> onnx.ModelProto:
    model = chain()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(W.astype(np.float64), "w"))
    return model


def test_an_invalid_graph_is_named() -> None:
    with pytest.raises(InvalidModelError, match="mm"):
        sessions.deployed(with_double_weight())


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({}, "input 'x' .* is missing"),
        ({"x": X, "z": X}, "no input 'z'"),
        ({"x": X.astype(np.float64)}, "input 'x' is float32.* is float64"),
        ({"x": X[:, :2]}, "x.*Got: 2 Expected: 3"),
        ({"x": X[0]}, "rank.*x"),
    ],
)
@pytest.mark.parametrize("kind", ["reference", "deployed"])
def test_bad_feeds_name_the_input(feed: dict[str, np.ndarray], message: str, kind: str) -> None:
    session = sessions.session(chain(), kind)
    with pytest.raises(VerifyError, match=message):
        session.run(feed)
    # A bad feed is not the session's fault: it stays what it was, and still works.
    assert (session.kind, session.note) == (kind, "")
    assert session.run({"x": X})["y"].shape == (2, 2)


def test_a_failure_inside_the_graph_names_the_node() -> None:
    text = CHAIN.replace("float[N, 3] x", "float[N, M] x")
    with pytest.raises(VerifyError, match="mm"):
        sessions.reference(parser.parse_model(text)).run({"x": X[:, :2]})


def test_nothing_is_printed_by_onnxruntime(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VerifyError):
        sessions.deployed(chain()).run({"x": X[:, :2]})
    with pytest.raises(InvalidModelError):
        sessions.reference(with_double_weight())
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "kind", ["BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT16", "UINT8", "BOOL", "DOUBLE"]
)
def test_types_numpy_lacks_pass_through(kind: str) -> None:
    onnx_type = TensorProto.DataType.Value(kind)
    dtype = helper.tensor_dtype_to_np_dtype(onnx_type)
    info = [helper.make_tensor_value_info(n, onnx_type, [2, 2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = sessions.reference(model)
    assert session.inputs[0].dtype == dtype
    x = np.array([[0, 1], [2, 3]]).astype(dtype)
    y = session.run({"x": x})["y"]
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize(("kind", "dtype"), [("int4", ml_dtypes.int4), ("uint4", ml_dtypes.uint4)])
def test_four_bit_values_go_in_and_out(kind: str, dtype: type) -> None:
    text = f"""
    <ir_version: 10, opset_import: ["": 21]>
    g ({kind}[5] x) => (float[5] y, {kind}[5] z)
    <float s = {{0.5}}, float nil = {{0}}>
    {{ y = DequantizeLinear(x, s)  zero = CastLike(nil, x)  z = QuantizeLinear(y, s, zero) }}
    """
    x = np.array([0, 1, 2, 7, 5]).astype(dtype)
    values = sessions.reference(parser.parse_model(text)).run({"x": x})
    np.testing.assert_array_equal(values["y"], [0, 0.5, 1, 3.5, 2.5])
    assert values["z"].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(values["z"].astype(int), x.astype(int))


def test_strings_and_scalars_pass_through() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (string[2] s, int64 i) => (string[2] t, int64 j) { t = Identity(s)  j = Add(i, i) }
    """
    session = sessions.reference(parser.parse_model(text))
    values = session.run({"s": np.array(["a", "ü"], object), "i": np.array(3)})
    assert values["t"].tolist() == ["a", "ü"]
    assert values["j"] == 6


def test_an_output_that_is_no_tensor_is_refused_by_name() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4] x) => (seq(float[N]) pieces) { pieces = SplitToSequence(x) }
    """
    session = sessions.reference(parser.parse_model(text))
    with pytest.raises(UnsupportedModelError, match="'pieces'"):
        session.run({"x": np.ones(4, np.float32)})


def qdq_conv(weight_type: str = "int8", shared_zero_point: bool = False) -> onnx.ModelProto:
    """Two u8 × s8 Q/DQ convolutions, fully fusable."""
    zero_2 = "zw1" if shared_zero_point else "zw2"
    return parser.parse_model(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
    <float s = {{0.05}}, uint8 z = {{0}}, float sw = {{0.01}}, {weight_type} zw1 = {{0}},
     {weight_type} zw2 = {{0}}, {weight_type}[2, 2, 1, 1] w1 = {{1, 2, 3, 100}},
     {weight_type}[2, 2, 1, 1] w2 = {{4, 3, 2, 1}}>
    {{
        qx = QuantizeLinear(x, s, z)    dx = DequantizeLinear(qx, s, z)
        d1 = DequantizeLinear(w1, sw, zw1)
        [conv1] c1 = Conv(dx, d1)
        q1 = QuantizeLinear(c1, s, z)   a1 = DequantizeLinear(q1, s, z)
        d2 = DequantizeLinear(w2, sw, {zero_2})
        [conv2] c2 = Conv(a1, d2)
        q2 = QuantizeLinear(c2, s, z)   y = DequantizeLinear(q2, s, z)
    }}
    """)


def test_optimized_ops_shows_what_was_fused() -> None:
    assert optimized_ops(qdq_conv())["QLinearConv"] == 2
    assert optimized_ops(qdq_conv(), "reference")["QLinearConv"] == 0
    off = optimized_ops(qdq_conv(), **{"session.disable_quant_qdq": "1"})
    assert (off["QLinearConv"], off["Conv"]) == (0, 2)


def test_optimized_ops_counts_bodies_and_takes_paths(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2] x, bool c) => (float[2] y)
    { y = If (c) <then_branch = t () => (float[2] p) { p = Tanh(x) },
                  else_branch = e () => (float[2] q) { q = Sin(x) }> }
    """
    ops = optimized_ops(saved(tmp_path, parser.parse_model(text)), "reference")
    assert ops["Tanh"] == ops["Sin"] == ops["If"] == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "m.onnx"]


def test_a_shared_zero_point_falls_back_and_says_so() -> None:
    shared = qdq_conv(shared_zero_point=True)
    session = sessions.deployed(shared)
    x = np.random.default_rng(0).random((1, 2, 4, 4), np.float32)
    expected = sessions.reference(shared).run({"x": x})["y"]
    np.testing.assert_array_equal(session.run({"x": x})["y"], expected)
    if session.kind == "reference":
        assert "zero-point" in session.note
    else:  # an onnxruntime in which the fault is repaired needs no note
        assert session.note == ""


@pytest.mark.parametrize(
    "variant", ["torch-fakequant-u8s8-pc-ts", "brevitas-qcdq-int8", "onnxsim-weight-only-int8"]
)
def test_foreign_files_refused_in_deployed_mode_still_run(variant: str) -> None:
    path = FIXTURES / "A1" / variant / "model.onnx"
    if not path.exists():
        pytest.skip("the models of other tools are not on this machine")
    session = sessions.deployed(path)
    with np.load(FIXTURES / "A1" / "test.npz") as data:
        feed = {"x": data["x"][:1]}
    values = session.run(feed)
    assert session.kind == "reference"
    assert "the reference session ran instead" in session.note
    for name, value in sessions.reference(path).run(feed).items():
        np.testing.assert_array_equal(values[name], value)


def test_integer_ops_lists_products_with_signed_weights_only() -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    g (uint8[2, 2] x, float s) => (int32[2, 2] a, int32[2, 2] b, uint8[2, 2] c, uint8[2, 2] d)
    <int8[2, 2] ws = {1, 2, 3, 4}, uint8[2, 2] wu = {1, 2, 3, 4}, uint8 z = {0}, int8 zs = {0}>
    {
        [signed] a = MatMulInteger(x, ws)
        [unsigned] b = MatMulInteger(x, wu)
        c = QLinearMatMul(x, s, z, ws, s, zs, s, z)
        [sum] d = com.microsoft.QLinearAdd(x, s, z, x, s, z, s, z)
    }
    """
    assert sessions.integer_ops(parser.parse_model(text)) == ["signed", "c"]
    assert sessions.integer_ops(qdq_conv()) == []


def test_an_output_that_stands_there_twice() -> None:
    proto = ZOO["qop_conv_matmul"]()
    proto.graph.output.append(proto.graph.output[0])
    once = list(sessions.reference(ZOO["qop_conv_matmul"]()).run(inputs(proto)).values())
    assert bit_equal(list(sessions.reference(proto).run(inputs(proto)).values()), once)
