"""Comparison of two models: what is equal, how far apart they are, and where they part."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxq.errors import LoadError, VerifyError
from onnxq.graph import from_proto
from onnxq.proof.difference import Tolerance
from onnxq.proof.trusted import Trusted
from onnxq.proof.verify import Report, compare, verify
from onnxq.quant.qparams import Array
from onnxq.running import sessions
from tests.checks.optimized import optimized_ops
from tests.checks.saturating import cpu_saturates, saturated_products, saturates
from tests.models.foreign_files import FOLDER as FIXTURES


def model(text: str, opset: int = 17) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>' + text)


def fake_quant(scale: float = 0.25, shift: float = 0.0) -> onnx.ModelProto:
    """x on a grid of `scale`, moved by `shift` before it is quantized."""
    return model(
        f"""g (float[N, 4] x) => (float[N, 4] y)
        <float s = {{{scale}}}, int8 z = {{0}}, float d = {{{shift}}}> {{
        [shift] moved = Add(x, d)
        [quant] q = QuantizeLinear(moved, s, z)
        [dequant] y = DequantizeLinear(q, s, z) }}"""
    )


def chain(edited: str = "") -> onnx.ModelProto:
    """Four layers; the one named `edited` computes something else."""
    layers = {"one": "Relu(x)", "two": "Abs(a)", "three": "Sigmoid(b)", "four": "Exp(c)"}
    if edited:
        layers[edited] = "Neg(" + layers[edited].split("(")[1]
    return model(
        f"""g (float[2, 3] x) => (float[2, 3] y) {{
        [one] a = {layers["one"]}  [two] b = {layers["two"]}
        [three] c = {layers["three"]}  [four] y = {layers["four"]} }}"""
    )


@pytest.mark.parametrize("per_layer", [False, True])
def test_a_model_equals_itself_in_every_form(per_layer: bool, tmp_path: Path) -> None:
    proto = fake_quant()
    onnx.save(proto, tmp_path / "m.onnx")
    for other in (proto, from_proto(proto), tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        report = verify(proto, other, per_layer=per_layer)
        assert report.passed
        assert report.notes == ()
        assert report.samples == 4
        (y,) = report.outputs
        assert (y.max, y.mean, y.moved, y.count, y.nonfinite) == (0, 0, 0, 16, 0)
        assert (y.unit, y.step) == ("steps", 0.25)
        assert [d.name for d in report.layers] == (["moved", "y"] if per_layer else [])
        assert report.first_divergence is None


@pytest.mark.parametrize("scale", [0.25, 0.1, 0.0371, 1e-3])
def test_a_shift_by_one_step_is_exactly_one_step(scale: float) -> None:
    # Values in the middle of the range, away from rounding ties and saturation.
    codes = np.random.default_rng(0).integers(-100, 100, (8, 4))
    data = (codes * np.float32(scale)).astype(np.float32)
    for steps in (1, 3):
        shifted = fake_quant(scale, steps * scale)
        report = verify(fake_quant(scale), shifted, data, max_steps=1, max_moved=1)
        (y,) = report.outputs
        assert (y.max, y.mean, y.moved) == (steps, steps, 1)
        assert report.passed == (steps == 1)
    few = verify(fake_quant(scale), fake_quant(scale, scale), data)
    assert not few.passed  # within a step, but more than one in a hundred moved
    assert few.worst is not None
    assert few.worst.name == "y"


def test_a_float_model_against_its_quantized_form_moves_half_a_step_at_most() -> None:
    plain = model("g (float[N, 4] x) => (float[N, 4] y) { y = Identity(x) }")
    data = np.linspace(-20, 20, 400, dtype=np.float32).reshape(100, 4)
    (y,) = verify(plain, fake_quant(), data).outputs  # the step is found in the second model
    assert y.unit == "steps"
    assert 0.45 < y.max <= 0.5
    assert 0.2 < y.mean < 0.3


def test_per_channel_steps_count_along_their_axis() -> None:
    def per_channel(delta: tuple[float, float]) -> onnx.ModelProto:
        return model(
            f"""g (float[1, 2, 3] x) => (float[1, 2, 3] y)
            <float[2] s = {{0.5, 0.01}}, int8[2] z = {{0, 0}},
             float[1, 2, 1] d = {{{delta[0]}, {delta[1]}}}> {{
            m = Add(x, d)
            q = QuantizeLinear<axis=1>(m, s, z)
            y = DequantizeLinear<axis=1>(q, s, z) }}"""
        )

    data = np.zeros((1, 2, 3), np.float32)
    for delta, expected in [((0.5, 0), 1), ((0, 0.01), 1), ((0.5, 0.05), 5)]:
        (y,) = verify(per_channel((0, 0)), per_channel(delta), data).outputs
        assert (y.max, y.step) == (expected, 0.5)
        assert y.moved == (1 if delta == (0.5, 0.05) else 0.5)


def test_a_tensor_without_a_step_is_measured_relative_to_its_size() -> None:
    def scaled(by: float) -> onnx.ModelProto:
        return model(f"g (float[2] x) => (float[2] y) <float c = {{{by}}}> {{ y = Mul(x, c) }}")

    data = np.array([[1, -8], [2, 4]], np.float32)
    (y,) = verify(scaled(1), scaled(1.5), data).outputs
    assert (y.unit, y.step) == ("relative", None)
    assert (y.max, y.moved) == (0.5, 1)
    assert y.mean == pytest.approx(0.5 * 15 / 4 / 8)
    assert not y.passed
    assert verify(scaled(1), scaled(1.0005), data).passed
    assert not verify(scaled(1), scaled(1.0005), data, max_relative=1e-4).passed
    (y,) = verify(scaled(0), scaled(2), data).outputs  # the trusted side is zero throughout
    assert (y.max, y.passed) == (1, False)


def test_nan_and_infinity_must_stand_at_the_same_places() -> None:
    def powered(op: str) -> onnx.ModelProto:
        return model(f"g (float[4] x) => (float[4] y) {{ y = {op}(x) }}")

    data = np.array([-1, 0, 1, 2], np.float32)
    same = verify(powered("Log"), powered("Log"), data)  # nan, -inf, 0, 0.69
    assert same.passed
    assert same.outputs[0].nonfinite == 0
    report = verify(powered("Log"), powered("Sqrt"), data)  # nan, 0, 1, 1.41
    assert report.outputs[0].nonfinite == 1
    assert not report.passed
    text = json.dumps(report.to_json(), allow_nan=False)
    assert json.loads(text)["outputs"][0]["nonfinite"] == 1
    opposite = verify(
        model("g (float[1] x) => (float[1] y) { z = Sub(x, x)  y = Div(x, z) }"),
        model("g (float[1] x) => (float[1] y) { z = Sub(x, x)  n = Neg(x)  y = Div(n, z) }"),
        np.array([3], np.float32),
    )
    assert opposite.outputs[0].nonfinite == 1


def test_integers_booleans_and_strings_are_exact() -> None:
    def several(by: int, op: str, suffix: str) -> onnx.ModelProto:
        proto = model(
            f"""g (int64[3] i, float[3] x, string[3] t)
            => (int64[3] a, bool[3] b, string[3] c) <int64 k = {{{by}}}, float o = {{0}}> {{
            a = Add(i, k)  b = {op}(x, o)  c = Identity(t) }}"""
        )
        proto.graph.initializer.append(numpy_helper.from_array(np.array([suffix], object), "s"))
        proto.opset_import[0].version = 20
        proto.graph.node[2].CopyFrom(helper.make_node("StringConcat", ["t", "s"], ["c"]))
        return proto

    feed = {
        "i": np.array([1, 2, 1 << 62]),
        "x": np.array([-1, 0, 1], np.float32),
        "t": np.array(["a", "b", "c"], object),
    }
    assert verify(several(0, "Less", ""), several(0, "Less", ""), [feed]).passed
    report = verify(several(0, "Less", ""), several(1, "LessOrEqual", "!"), [feed])
    a, b, c = report.outputs
    assert [d.unit for d in (a, b, c)] == ["exact"] * 3
    assert (a.max, a.moved) == (1, 1)
    assert (b.max, b.moved) == (1, pytest.approx(1 / 3))
    assert (c.max, c.moved) == (1, 1)
    assert not any(d.passed for d in report.outputs)


def test_codes_are_compared_in_steps() -> None:
    def codes(shift: float) -> onnx.ModelProto:
        return model(
            f"""g (float[200] x) => (uint8[200] y)
            <float s = {{1}}, uint8 z = {{0}}, float d = {{{shift}}}> {{
            m = Add(x, d)  y = QuantizeLinear(m, s, z) }}"""
        )

    data = np.full(200, 10, np.float32)
    data[0] = 10.4
    (y,) = verify(codes(0), codes(0.2), data).outputs
    assert (y.unit, y.max, y.moved, y.passed) == ("steps", 1, 0.005, True)


@pytest.mark.parametrize("layer", ["one", "two", "three", "four"])
def test_the_first_divergence_is_the_edited_layer(layer: str) -> None:
    report = verify(chain(), chain(layer), per_layer=True, count=2)
    assert [d.name for d in report.layers] == ["a", "b", "c", "y"]
    first = report.first_divergence
    assert first is not None
    assert first.node == layer
    assert first.op == {"one": "Relu", "two": "Abs", "three": "Sigmoid", "four": "Exp"}[layer]
    assert not report.passed
    assert report.to_json()["first_divergence"] == first.name


def test_layers_follow_the_graph_even_where_the_file_does_not() -> None:
    shuffled = chain()
    nodes = list(shuffled.graph.node)
    del shuffled.graph.node[:]
    shuffled.graph.node.extend(nodes[::-1])
    report = verify(shuffled, chain("three"), per_layer=True)
    assert [d.name for d in report.layers] == ["a", "b", "c", "y"]
    assert report.first_divergence is not None
    assert report.first_divergence.node == "three"


def test_layers_of_other_kinds_and_names_are_left_out() -> None:
    text = """g (float[2, 3] x) => (float[2, 3] y) <float one = {1}> {
        shape = Shape(x)  left = Relu(x)  c = Constant<value_float = 1.0>()
        n = ConstantOfShape(shape)  m = Add(left, n)  y = Mul(m, c) }"""
    report = verify(model(text), model(text.replace("left", "right")), per_layer=True)
    assert [d.name for d in report.layers] == ["n", "m", "y"]
    assert report.passed


def test_outputs_and_inputs_pair_by_position_where_names_differ() -> None:
    text = """g (float[N, 2] x, float[N, 2] z) => (float[N, 2] s, float[N, 2] d) {
        s = Add(x, z)  d = Sub(x, z) }"""
    renamed = text.replace("x", "first").replace("z", "second").replace("d =", "diff =")
    renamed = renamed.replace("2] d)", "2] diff)")
    report = verify(model(text), model(renamed))
    assert report.passed
    assert [(d.name, d.other) for d in report.outputs] == [("s", "s"), ("d", "diff")]
    # Same names, other order: by name.
    swapped = text.replace("(float[N, 2] s, float[N, 2] d)", "(float[N, 2] d, float[N, 2] s)")
    assert verify(model(text), model(swapped)).passed


def test_an_input_that_a_pass_removed_is_not_fed() -> None:
    whole = model("g (float[2] x, float[2] unused) => (float[2] y) { y = Relu(x) }")
    pruned = model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    assert verify(whole, pruned).passed


def test_a_float16_twin_gets_float16_inputs() -> None:
    single = model("g (float[4] x) => (float[4] y) { y = Relu(x) }")
    half = model("g (float16[4] x) => (float16[4] y) { y = Relu(x) }")
    report = verify(single, half)
    assert 0 < report.outputs[0].max < 1e-3
    assert report.passed


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("(float[2] x) => (float[2] y)", "(float[2] x) => (float[2] y, float[2] z)", "2 .*y, z"),
        ("(float[2] x) => (float[2] y)", "(float[2] p, float[2] q) => (float[2] y)", "inputs"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(a: str, b: str, message: str) -> None:
    bodies = [
        "{ y = Relu(x) }",
        "{ y = Relu(x)  z = Relu(x) }" if "z" in b else "{ y = Add(p, q) }",
    ]
    with pytest.raises(VerifyError, match=message):
        verify(model(f"g {a} {bodies[0]}"), model(f"g {b} {bodies[1]}"))


def test_different_shapes_and_kinds_are_refused_by_name() -> None:
    flat = model("g (float[2, 3] x) => (float[6] y) <int64[1] s = {6}> { y = Reshape(x, s) }")
    same = model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    kind = model("g (float[2, 3] x) => (bool[2, 3] y) { y = IsNaN(x) }")
    with pytest.raises(VerifyError, match=r"'y' is float32\[2, 3\].*float32\[6\]"):
        verify(same, flat)
    with pytest.raises(VerifyError, match=r"'y' is float32.*bool"):
        verify(same, kind)


def test_no_samples_prove_nothing() -> None:
    with pytest.raises(VerifyError, match="nothing was compared"):
        verify(chain(), chain(), count=0)
    with pytest.raises(LoadError, match="no samples"):
        verify(chain(), chain(), [])


def test_external_data_scales_and_layers_are_found(tmp_path: Path) -> None:
    proto = fake_quant()
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    options = {"save_as_external_data": True, "location": "m.data", "size_threshold": 0}
    onnx.save(proto, tmp_path / "m.onnx", **options)
    assert (tmp_path / "m.data").exists()
    report = verify(tmp_path / "m.onnx", fake_quant(shift=0.25), per_layer=True)
    assert report.outputs[0].step == 0.25
    assert report.first_divergence is not None
    assert report.first_divergence.node == "shift"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.data", "m.onnx"]


def test_memory_does_not_grow_with_the_samples() -> None:
    def stream(count: int) -> Iterator[dict[str, np.ndarray]]:
        for index in range(count):
            yield {"x": np.full((1, 4), index, np.float32)}

    def peak(count: int) -> int:
        tracemalloc.start()
        report = verify(fake_quant(), fake_quant(), stream(count), per_layer=True)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.samples == count
        return size

    peak(2)  # modules and caches are loaded once
    assert peak(400) < peak(20) + 20_000


def saturating() -> onnx.ModelProto:
    """u8 × s8 with weights of ±127 over 64 channels: sums of pairs exceed 16 bits."""
    rng = np.random.default_rng(0)
    weight = rng.choice([-127, 127], (64, 64, 1, 1)).astype(np.int8)
    constants = {
        "sx": np.float32(1 / 255),
        "zx": np.uint8(0),
        "w": weight,
        "sw": np.float32(0.01),
        "zw": np.int8(0),
        "sy": np.float32(0.25),
        "zy": np.uint8(128),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zx"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["dw"]),
        helper.make_node("Conv", ["dx", "dw"], ["c"], "conv"),
        helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "sy", "zy"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "saturating",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64, 8, 8])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_deployed_session_does_not_saturate() -> None:
    proto = saturating()
    data = np.random.default_rng(1).random((2, 64, 8, 8), np.float32)
    assert optimized_ops(proto)["QLinearConv"] == 1
    report = verify(proto, proto, data, sessions=("reference", "deployed"), per_layer=True)
    assert report.sessions == ("reference", "deployed")
    assert report.passed
    assert report.worst is not None
    assert report.worst.max <= 1
    assert [d.name for d in report.layers] == ["dx", "y"]  # weights are not tapped
    tapped = saturating()
    tapped.graph.output.append(onnx.ValueInfoProto(name="dx"))
    assert optimized_ops(tapped)["QLinearConv"] == 1  # what the taps rely on


def without_vnni(x: Array) -> Array:
    """What the default session makes of `saturating()` on a CPU without VNNI."""
    parts = {i.name: numpy_helper.to_array(i) for i in saturating().graph.initializer}
    codes = np.rint(x / parts["sx"]).astype(np.int64).transpose(1, 0, 2, 3).reshape(64, -1)
    weight = parts["w"].reshape(64, 64).astype(np.int64)
    sums = saturated_products(weight, codes).sum(axis=1) * (parts["sx"] * parts["sw"])
    y = (np.clip(np.rint(sums / parts["sy"]) + 128, 0, 255) - 128) * parts["sy"]
    return y.reshape(64, len(x), 8, 8).transpose(1, 0, 2, 3).astype(np.float32)


@pytest.mark.parametrize("vnni", [True, False])
def test_a_default_session_that_saturates_is_reported(
    vnni: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def default(source: sessions.ModelSource, taps: Iterable[str] = ()) -> sessions.Session:
        made = exact(source, taps)
        made.kind = "shipped"
        if not vnni:
            monkeypatch.setattr(made, "_run", lambda feeds, _: [without_vnni(feeds["x"])])
        return made

    exact = sessions.deployed
    monkeypatch.setattr(sessions, "shipped", default)
    proto = saturating()
    data = np.random.default_rng(1).random((2, 64, 8, 8), np.float32)
    report = verify(proto, proto, data, sessions=("deployed", "shipped"), max_moved=1.0)
    found = saturates(proto, data)
    told = _saturation_notes(report)
    if vnni:
        assert report.passed
        assert found is None
        assert not told
    else:
        assert found is not None
        assert report.worst is not None
        assert found.max == report.worst.max > 1
        assert told


def test_the_default_session_of_this_cpu_is_reported_where_it_saturates() -> None:
    proto = saturating()
    data = np.random.default_rng(1).random((2, 64, 8, 8), np.float32)
    report = verify(proto, proto, data, sessions=("deployed", "shipped"), max_moved=1.0)
    assert report.passed == (not cpu_saturates())
    assert bool(_saturation_notes(report)) == cpu_saturates()
    (got,) = sessions.shipped(proto).run({"x": data[:1]}).values()
    (right,) = sessions.deployed(proto).run({"x": data[:1]}).values()
    wanted = without_vnni(data[:1]) if cpu_saturates() else right
    assert np.abs(got - wanted).max() <= 0.25  # a step: sums are rounded in float


def _saturation_notes(report: Report) -> list[str]:
    return [note for note in report.notes if "default session saturates" in note]


def test_integer_operators_are_noted_where_the_session_is_no_reference() -> None:
    proto = model(
        """g (uint8[1, 4] x) => (int32[1, 4] y)
        <int8[4, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> { [mmi] y = MatMulInteger(x, w) }"""
    )
    report = verify(proto, proto, sessions=("reference", "shipped"))
    assert report.passed
    (note,) = report.notes
    assert note.startswith("second model: integer kernels may saturate")
    assert "'mmi'" in note


def test_a_fallback_is_noted() -> None:
    path = FIXTURES / "A1" / "torch-fakequant-u8s8-pc-ts" / "model.onnx"
    if not path.exists():
        pytest.skip("the models of other tools are not on this machine")
    data = FIXTURES / "A1" / "test.npz"
    report = verify(path, path, data, sessions=("reference", "deployed"), per_layer=True)
    assert report.samples == 4
    assert report.sessions == ("reference", "reference")
    assert any("the reference session ran instead" in note for note in report.notes)
    assert report.passed
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["passed"] is True


@pytest.mark.parametrize("name", ["A1", "A2"])
def test_every_dequantized_layer_of_a_foreign_file_has_a_step(name: str) -> None:
    path = FIXTURES / name / "torch-fakequant-u8s8-pc-ts" / "model.onnx"
    if not path.exists():
        pytest.skip("the models of other tools are not on this machine")
    # Per tensor and per channel, scales behind Identity.
    report = verify(path, path, FIXTURES / name / "test.npz", per_layer=True)
    dequantized = [d for d in report.layers if d.op == "DequantizeLinear"]
    assert dequantized
    assert all(d.unit == "steps" for d in dequantized)
    assert report.passed


def test_a_watcher_sees_inputs_and_tensors_of_both() -> None:
    seen: list[tuple[set[str], set[str]]] = []
    first, second = (Trusted(fake_quant(shift=s), count=2, taps=["moved"]) for s in (0.0, 0.1))
    compare(first, second, Tolerance(), watch=lambda a, b: seen.append((set(a), set(b))))
    assert seen == [({"x", "moved", "y"}, {"x", "moved", "y"})] * 2


def test_models_whose_inputs_differ_are_told_so() -> None:
    one = model("g (float[N,3,8] x) => (float[N,3,8] y) { y = Relu(x) }")
    two = model("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }")
    with pytest.raises(
        VerifyError, match=r"'x' is .*\[N, 3, 8\] in the first, .*\[N, 4\]"
    ) as caught:
        verify(one, two)
    assert "same inputs" in caught.value.fix
