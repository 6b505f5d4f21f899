from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import from_proto
from onnxq.operators.traits import DEQUANTIZE, QUANTIZE
from onnxq.pipeline import Pipeline
from onnxq.running.sessions import reference
from passes.fold_constants import FoldConstants
from passes.read_qdq import ReadQdq
from tests.checks.applied import apply_checked
from tests.models import zoo
from tests.models.build import parse
from tests.models.zoo_build import Build


def test_a_chain_becomes_one_initializer_with_the_runtimes_own_bits() -> None:
    """sqrt(var + eps) and gamma / that, as training graphs spell the folded BN factor."""
    b = Build()
    gamma, var = b.init(b.random(4)), b.init(np.abs(b.random(4)))
    root = b.op("Sqrt", b.op("Add", var, b.op("Constant", value_float=1e-5)))
    factor = b.op("Reshape", b.op("Div", gamma, root), b.ints(1, 4, 1, 1), out="factor")
    proto = b.model(b.op("Mul", b.input("x", [1, 4, 2, 2]), factor))
    done = apply_checked(proto, FoldConstants())
    assert done.ops() == ["Mul"]
    assert list(done.initializers()) == ["factor"]
    tapped = reference(proto, taps=["factor"]).run(zoo.inputs(proto))["factor"]
    np.testing.assert_array_equal(done.initializers()["factor"], tapped)
    assert len(done.trace.rewrites) == 4


@pytest.mark.parametrize(
    "name", ["weight_behind_identity", "weight_behind_cast", "weight_behind_transpose"]
)
def test_weights_behind_other_nodes_become_initializers(name: str) -> None:
    # A kernel may prepack a weight that is an initializer, and then adds in another order.
    done = apply_checked(zoo.ZOO[name](), FoldConstants(), rtol=1e-6)
    constants = set(done.initializers())
    layers = [n for n in done.proto.graph.node if n.op_type in ("Conv", "MatMul", "Gemm")]
    assert layers
    assert all(n.input[1] in constants for n in layers)
    assert not {"Cast", "Transpose", "Identity"} & set(done.ops())


@pytest.mark.parametrize("canonical", [False, True], ids=["qdq", "canonical"])
@pytest.mark.parametrize("name", sorted(zoo.QDQ))
def test_quantization_is_never_computed_away(name: str, canonical: bool) -> None:
    model = from_proto(zoo.ZOO[name]())
    if canonical:
        model = Pipeline(ReadQdq()).run(model).model
    kinds = ("QuantizeLinear", "DequantizeLinear", "onnxq::FakeQuantize")
    result = Pipeline(FoldConstants()).run(model)
    assert [n.name for n in result.model.nodes(*kinds)] == [n.name for n in model.nodes(*kinds)]


def test_what_follows_a_quantizer_stays_and_what_leads_to_it_is_folded() -> None:
    done = apply_checked(
        """g (float[2] x) => (float[2] y)
        <float[2] w = {1.23, -4}, float two = {2}, float s = {0.5}, int8 z = {0}> {
          w2 = Mul(w, two) q = QuantizeLinear(w2, s, z) d = DequantizeLinear(q, s, z)
          n = Neg(d) y = Add(x, n) }""",
        FoldConstants(),
    )
    assert done.ops() == ["QuantizeLinear", "DequantizeLinear", "Neg", "Add"]
    assert done.reasons() == ["quantization stays in the graph"]


@pytest.mark.parametrize("op", [*QUANTIZE, *DEQUANTIZE])
def test_quantizers_of_every_domain_stay(op: str) -> None:
    domain = op.rpartition("::")[0]
    kinds = ("int8", "float") if op in DEQUANTIZE else ("float", "int8")
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17, "{domain or "com.microsoft"}" : 1]>
        g () => ({kinds[1]}[2] y) <{kinds[0]}[2] w = {{1, 2}}, float s = {{0.5}}, int8 z = {{0}}> {{
          y = {op.replace("::", ".")}(w, s, z) }}"""
    )
    trace = Pipeline(FoldConstants()).run(from_proto(proto)).traces[0]
    assert [skip.reason for skip in trace.skips] == ["quantization stays in the graph"]


def test_integer_operators_stay() -> None:
    done = apply_checked(
        """g (int32[1,1] x) => (int32[1,1] y, uint8[2] q)
        <uint8[1,2] a = {1, 2}, int8[2,1] b = {3, -4}, float[2] w = {1, 2}> {
          q, s, z = DynamicQuantizeLinear(w) m = MatMulInteger(a, b) y = Add(x, m) }""",
        FoldConstants(),
    )
    assert done.ops() == ["DynamicQuantizeLinear", "MatMulInteger", "Add"]
    assert done.reasons() == ["quantization stays in the graph"] * 2


def test_a_quantizer_spelled_out_on_a_weight_stays_whole() -> None:
    """Folding Div alone would hide the scale from the pass that reads this form."""
    done = apply_checked(
        """g (float[2] x) => (float[2] y, float[2] side)
        <float[2] w = {1.23, -4}, float s = {0.5}, float lo = {-128}, float hi = {127}> {
          f = Neg(w) a = Div(f, s) r = Round(a) c = Clip(r, lo, hi) d = Mul(c, s)
          y = Add(x, d) e = Exp(f) side = Mul(x, e) }""",
        FoldConstants(),
    )
    assert done.trace.rewrites == []
    assert [n.output[0] for n in done.proto.graph.node] == [
        "f",
        "a",
        "r",
        "c",
        "d",
        "y",
        "e",
        "side",
    ]
    assert len([r for r in done.reasons() if "part of a composed quantizer" in r]) == 3
    assert "'f' is not folded" in done.reasons()


def test_random_values_are_not_frozen() -> None:
    model = parse("""g (float[2] x) => (float[2] y) <float[2] w = {1, 2}>
        { r = RandomNormalLike(w) z = Mul(r, x) y = Sub(z, z) }""")
    done = apply_checked(model, FoldConstants())
    assert "RandomNormalLike" in done.ops()
    assert done.reasons() == ["its result may be random"]


def test_an_initializer_the_caller_may_replace_is_not_constant() -> None:
    done = apply_checked(
        """g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}>
        { n = Neg(w) y = Add(x, n) }""",
        FoldConstants(),
    )
    assert done.ops() == ["Neg", "Add"]
    model = reference(done.proto)
    got = model.run({"x": np.zeros(2, np.float32)})["y"]
    np.testing.assert_array_equal(got, [-1, -2])


def test_nodes_of_unknown_domains_and_with_bodies_stay() -> None:
    proto = zoo.ZOO["local_function"]()
    proto.graph.node.append(
        helper.make_node("Leaky", [proto.graph.initializer[0].name], ["k"], domain="zoo.local")
    )
    proto.graph.node.append(helper.make_node("Neg", ["k"], ["k_out"]))
    proto.graph.output.append(
        helper.make_tensor_value_info("k_out", TensorProto.FLOAT, proto.graph.initializer[0].dims)
    )
    assert apply_checked(proto, FoldConstants()).reasons() == [
        "the meaning of operators of domain 'zoo.local' is unknown"
    ]
    done = apply_checked(
        """g (float[2] x) => (float[2] y) <bool flag = {1}, float[2] w = {1, 2}> {
          k = If(flag) <
            then_branch = t () => (float[2] a) { a = Neg(w) },
            else_branch = e () => (float[2] b) { b = Relu(w) }
          > y = Add(x, k) }""",
        FoldConstants(),
    )
    assert done.reasons() == ["it contains subgraphs"]
    assert sorted(done.ops()) == ["Add", "If"]


def test_bodies_are_folded_where_names_repeat_and_outer_weights_are_read() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) <float[2] w = {3, 4}, float[2] b = {5, 6}> {
          n = Neg(w)
          y = If(flag) <
            then_branch = t () => (float[2] o) { k = Exp(n) o = Mul(x, k) },
            else_branch = e () => (float[2] p) { k = Sqrt(b) p = Add(x, k) }
          > }""",
        FoldConstants(),
    )
    assert sorted(done.ops()) == ["Add", "If", "Mul"]
    assert len(done.trace.rewrites) == 3


def test_a_body_that_returns_a_constant_result() -> None:
    done = apply_checked(
        """g (bool flag, float[2] x) => (float[2] y) <float[2] w = {3, 4}> {
          y = If(flag) <
            then_branch = t () => (float[2] o) { o = Neg(w) },
            else_branch = e () => (float[2] p) { p = Relu(x) }
          > }""",
        FoldConstants(),
    )
    assert sorted(done.ops()) == ["If", "Relu"]


def test_an_output_that_is_constant_keeps_its_name() -> None:
    done = apply_checked(
        """g (float[2] x) => (float[2] y, float[2] k) <float[2] w = {3, 4}>
        { k = Neg(w) y = Add(x, k) }""",
        FoldConstants(),
    )
    assert done.ops() == ["Add"]
    assert list(done.initializers()) == ["k"]


def outer_product(rows: int, columns: int) -> onnx.ModelProto:
    b = Build()
    y = b.op("MatMul", b.init(b.random(rows, 1)), b.init(b.random(1, columns)), out="big")
    return b.model(b.op("Add", y, b.input("x", [1])))


def test_a_large_result_stays_unless_allowed() -> None:
    proto = outer_product(64, 64)
    done = apply_checked(proto, FoldConstants(max_bytes=4096))
    assert done.reasons() == ["its result has 16384 bytes, max_bytes is 4096"]
    assert apply_checked(proto, FoldConstants(max_bytes=16384)).ops() == ["Add"]


def test_a_large_result_no_larger_than_its_inputs_is_folded() -> None:
    b = Build()
    weight = b.op("Transpose", b.init(b.random(64, 64)), perm=[1, 0])
    proto = b.model(b.op("MatMul", b.input("x", [2, 64]), weight))
    assert apply_checked(proto, FoldConstants(max_bytes=16), rtol=1e-6).ops() == ["MatMul"]


def test_a_huge_result_is_declined_without_computing_it() -> None:
    """The size of 4 TiB follows from a shape that is itself computed."""
    model = parse("""g (int64[1] i) => (float y)
        <int64[2] half = {524288, 524288}, float one = {1}> {
          shape = Add(half, half) z = Expand(one, shape) f = Gather(z, i) y = ReduceMax(f) }""")
    trace = Pipeline(FoldConstants()).run(model).traces[0]
    assert [s.reason for s in trace.skips] == [
        "its result has 4398046511104 bytes, max_bytes is 16777216"
    ]
    assert len(trace.rewrites) == 1


def test_sizes_that_depend_on_values_are_found_in_rounds() -> None:
    done = apply_checked(
        """g (int64[4] x) => (int64[1,4] y) <float[4] w = {0, 2, 0, 3}, int64[2] s = {2, 2}> {
          n = NonZero(w) t = Tile(n, s) u = ReduceSum(t) y = Add(x, u) }""",
        FoldConstants(),
    )
    assert done.ops() == ["Add"]


def test_what_onnxruntime_cannot_compute_stays_with_its_reason() -> None:
    """Its kernel fails; what does not depend on it is folded all the same."""
    b = Build()
    good = b.op("Neg", b.init(b.random(4)))
    bad = b.op("Gather", b.init(b.random(4)), b.ints(9), out="bad")
    after = b.op("Exp", bad)
    last = b.op("Abs", b.op("Neg", b.init(b.random(4))))
    x = b.op("Add", b.op("Add", b.input("x", [4]), good), last)
    proto = b.model(b.op("Add", x, after))
    result = Pipeline(FoldConstants()).run(from_proto(proto))
    assert [n.op for n in result.model.nodes()] == ["Gather", "Exp", "Add", "Add", "Add"]
    assert len(result.traces[0].rewrites) == 3
    reasons = [s.reason for s in result.traces[0].skips]
    assert len(reasons) == 2
    assert any("indices element out of data bounds" in r for r in reasons)
    assert "'bad' is not folded" in reasons


def test_constants_below_eight_bits_survive() -> None:
    codes = np.arange(-8, 7, dtype=np.int8).reshape(3, 5).astype(ml_dtypes.int4)
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["codes"], ["turned"], perm=[1, 0]),
            helper.make_node("DequantizeLinear", ["turned", "s"], ["w"]),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(np.float32(0.5), "s")],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    done = apply_checked(proto, FoldConstants())
    assert done.ops() == ["DequantizeLinear", "MatMul"]
    made = done.initializers()["turned"]
    assert made.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(made.astype(np.int8), codes.astype(np.int8).T)


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ("", [2, 3, 4]),
        ("<start = 1>", [3, 4]),
        ("<start = -2, end = -1>", [3]),
        ("<start = 1, end = 99>", [3, 4]),
    ],
)
def test_the_shape_of_a_tensor_of_fixed_size_is_constant(attributes: str, want: list[int]) -> None:
    done = apply_checked(
        f"g (float[2,3,4] x) => (int64[N] y) {{ s = Shape {attributes} (x) y = Neg(s) }}",
        FoldConstants(),
    )
    assert done.ops() == []
    np.testing.assert_array_equal(done.initializers()["y"], -np.array(want))


def test_a_shape_with_a_free_dimension_is_not() -> None:
    done = apply_checked(
        "g (float[N,3] x) => (int64[2] y) { s = Shape(x) y = Neg(s) }", FoldConstants()
    )
    assert done.ops() == ["Shape", "Neg"]
    assert done.reasons() == []


def test_only_used_outputs_of_a_split_are_kept() -> None:
    done = apply_checked(
        """g (float[2] x) => (float[2] y) <float[4] w = {1, 2, 3, 4}>
        { a, b = Split(w) y = Add(x, b) }""",
        FoldConstants(),
    )
    assert list(done.initializers()) == ["b"]


def test_metadata_and_unused_values_stay() -> None:
    proto = zoo.ZOO["unused_initializer"]()
    assert set(apply_checked(proto, FoldConstants()).initializers()) >= {"twin", "stray", "used"}
