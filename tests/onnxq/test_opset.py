"""Raising the opset changes neither what a model computes nor what it carries, or is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    checker,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from onnxq.errors import UnsupportedModelError
from onnxq.graph import MAX_OPSET, from_proto
from onnxq.opset import MOVED, RULES, raise_opset
from tests.same_model import assert_same

TARGETS = (13, 17, 21, 25)
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X = floats(2, 4, 6)
IMAGE = floats(1, 2, 6, 4)
ONES = floats(2, 1, 6, 1)
WORDS = floats(3, 1, 4)
POINTS = floats(1, 3, 3, 2) / 2
FIVE = [np.float32([1, 2, 3, 4]) * k for k in (1, 2, -1, 3)]

Case = tuple[ModelProto, dict[str, np.ndarray]]


def case(
    opset: int,
    op: str,
    *inputs: np.ndarray,
    fixed: tuple[np.ndarray | None, ...] = (),
    outputs: tuple[int, ...] = (TensorProto.FLOAT,),
    declared: bool = True,
    **attrs: Any,
) -> Case:
    """A model with one `op`: `inputs` are fed, `fixed` follow as initializers (None: left out).

    Its first input comes out of a Neg, with or without a declared type: nothing may depend on
    shape inference.
    """
    fed = [f"in{i}" for i in range(len(inputs))]
    held = [f"fixed{i}" if v is not None else "" for i, v in enumerate(fixed)]
    made = [f"out{i}" for i in range(len(outputs))]
    results = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(made, outputs, strict=True)
    ]
    nodes = [
        helper.make_node("Neg", [fed[0]], ["first"]),
        helper.make_node(op, ["first", *fed[1:], *held], made, name=f"the {op}", **attrs),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in zip(fed, inputs, strict=True)
        ],
        results,
        [numpy_helper.from_array(v, n) for n, v in zip(held, fixed, strict=True) if v is not None],
    )
    if declared:
        graph.value_info.append(helper.make_tensor_value_info("first", 1, inputs[0].shape))
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=4)
    return model, dict(zip(fed, inputs, strict=True))


INT64 = TensorProto.INT64
EMPTY = np.empty(0, np.float32)

CASES: dict[str, Case] = {
    "Slice-10": case(9, "Slice", X, starts=[1, -3], ends=[9, -1], axes=[1, 2]),
    "Slice-10 without axes": case(9, "Slice", X, starts=[0, 1], ends=[1, 3]),
    "TopK-10": case(9, "TopK", X, outputs=(1, INT64), k=3, axis=2),
    "Clip-11": case(7, "Clip", X, min=-0.5, max=0.5),
    "Clip-11 one bound": case(9, "Clip", X, declared=False, max=0.5),
    "Clip-11 no bound": case(10, "Clip", X),
    "Pad-11": case(10, "Pad", X, pads=[0, 1, 2, 0, 0, 1], value=1.5),
    "Pad-11 reflect": case(9, "Pad", X, pads=[0, 1, 2, 0, 0, 1], mode="reflect"),
    "Dropout-10": case(7, "Dropout", X, ratio=0.3),
    "Dropout-12": case(10, "Dropout", X, ratio=0.3),
    "Dropout-12 default": case(10, "Dropout", X),
    "Squeeze-13": case(11, "Squeeze", ONES, axes=[1, -1]),
    "Squeeze-13 all": case(9, "Squeeze", ONES),
    "Unsqueeze-13": case(11, "Unsqueeze", X, axes=[0, -1]),
    "Split-13": case(11, "Split", X, outputs=(1, 1), axis=2, split=[2, 4]),
    "Split-18": case(11, "Split", X, outputs=(1, 1, 1), axis=2),
    "Split-18 sizes as input": case(
        13, "Split", X, fixed=(np.int64([1, 5]),), outputs=(1, 1), axis=-1
    ),
    "ReduceSum-13": case(11, "ReduceSum", X, axes=[1], keepdims=0),
    "ReduceSum-13 all": case(11, "ReduceSum", X),
    **{
        f"{op}-18": case(11, op, abs(X) * -1, axes=[0, -1])
        for op, version in MOVED
        if version == 18
    },
    "Softmax-13": case(9, "Softmax", X, axis=1),
    "Softmax-13 default": case(11, "Softmax", X, declared=False),
    "Softmax-13 last": case(9, "Softmax", X, axis=2),
    "Softmax-13 last but undeclared": case(9, "Softmax", X, declared=False, axis=2),
    "Softmax-13 negative": case(11, "Softmax", X, axis=-2),
    "Softmax-13 first": case(11, "Softmax", X, axis=0),
    "LogSoftmax-13": case(9, "LogSoftmax", X, axis=1),
    "Hardmax-13": case(9, "Hardmax", X, axis=1),
    "Upsample-9": case(7, "Upsample", IMAGE, scales=[1.0, 1.0, 2.0, 1.5]),
    "Upsample-9 linear": case(7, "Upsample", IMAGE, mode="linear", scales=[1.0, 1.0, 2.0, 1.5]),
    "Upsample-10": case(9, "Upsample", IMAGE, np.float32([1, 1, 1.7, 3])),
    "Resize-11 enlarge": case(10, "Resize", IMAGE, fixed=(np.float32([1, 1, 2.3, 1.5]),)),
    "Resize-11 shrink": case(10, "Resize", IMAGE, fixed=(np.float32([1, 1, 0.6, 0.5]),)),
    "Resize-11 linear": case(10, "Resize", IMAGE, np.float32([1, 1, 0.6, 1.5]), mode="linear"),
    "Resize-13 sizes": case(
        11, "Resize", IMAGE, fixed=(EMPTY, EMPTY, np.int64([1, 2, 9, 5])), mode="linear"
    ),
    "Resize-13 scales": case(
        11,
        "Resize",
        IMAGE,
        fixed=(EMPTY, np.float32([1, 1, 2, 1.5])),
        nearest_mode="round_prefer_ceil",
    ),
    "Scatter-11": case(9, "Scatter", X, RNG.integers(0, 4, (2, 1, 6)), floats(2, 1, 6), axis=1),
    "BatchNormalization-9": case(
        7, "BatchNormalization", X, fixed=(*FIVE[:3], abs(FIVE[3])), epsilon=0.01, spatial=1
    ),
    "BatchNormalization-14": case(9, "BatchNormalization", X, fixed=(*FIVE[:3], abs(FIVE[3]))),
    "GridSample-20": case(16, "GridSample", IMAGE, POINTS),
    "GridSample-20 cubic": case(16, "GridSample", IMAGE, POINTS, mode="bicubic", align_corners=1),
    "GridSample-20 nearest": case(16, "GridSample", IMAGE, POINTS, mode="nearest"),
    "RoiAlign-16": case(
        10,
        "RoiAlign",
        IMAGE,
        fixed=(np.float32([[0.3, 0.2, 3.1, 4.4]]), np.int64([0])),
        output_height=2,
        output_width=3,
        sampling_ratio=2,
    ),
    "DFT-20": case(17, "DFT", floats(2, 4, 6, 1)),
    "DFT-20 axis": case(17, "DFT", floats(2, 4, 6, 1), axis=2, onesided=1),
    "DFT-20 length": case(17, "DFT", floats(2, 4, 6, 1), fixed=(np.array(5),), axis=1),
    "GroupNormalization-21": case(
        18, "GroupNormalization", X, fixed=(np.float32([2, 3]), np.float32([-1, 1])), num_groups=2
    ),
    # No rule: carried by the schemas alone.
    "MaxPool": case(7, "MaxPool", IMAGE, kernel_shape=[2, 2], pads=[0, 0, 1, 1], strides=[2, 2]),
    "AveragePool": case(
        7, "AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "Gemm": case(7, "Gemm", X[0], fixed=(floats(5, 6), floats(5)), transB=1, alpha=0.5),
    "LSTM": case(7, "LSTM", WORDS, fixed=(floats(1, 8, 4), floats(1, 8, 2)), hidden_size=2),
    "GRU": case(7, "GRU", WORDS, fixed=(floats(1, 6, 4), floats(1, 6, 2)), hidden_size=2),
    "QuantizeLinear": case(
        10, "QuantizeLinear", X, fixed=(np.float32(0.1), np.uint8(9)), outputs=(TensorProto.UINT8,)
    ),
    "ArgMax": case(9, "ArgMax", X, outputs=(INT64,), axis=1),
    "Cast": case(9, "Cast", X, outputs=(TensorProto.INT32,), to=TensorProto.INT32),
    "Reshape": case(7, "Reshape", X, fixed=(np.int64([0, -1]),)),
    "Flatten": case(7, "Flatten", X, axis=2),
    "DepthToSpace": case(9, "DepthToSpace", floats(1, 8, 2, 2), blocksize=2),
    "InstanceNormalization": case(
        7, "InstanceNormalization", X, fixed=(np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, 1]))
    ),
    "Conv": case(7, "Conv", IMAGE, fixed=(floats(3, 2, 3, 3), floats(3)), pads=[1, 1, 1, 1]),
    "LRN": case(7, "LRN", IMAGE, size=3),
    "PRelu": case(7, "PRelu", X, fixed=(np.float32([[0.1], [0.2], [0.3], [0.4]]),)),
}
STEPS = [
    (name, target)
    for name, (model, _) in CASES.items()
    for target in TARGETS
    if target > model.opset_import[0].version
]

NO_KERNEL = {("RoiAlign-16", 25)}
"""What onnxruntime 1.31 does not implement."""

BEFORE_ORT = {("BatchNormalization", 7), ("Dropout", 7), ("PRelu", 7), ("Scan", 9)} | {
    key for key in RULES if key[1] == 7
}
"""Changes of versions that onnxruntime does not run, or that are always refused: tested below."""


def run(proto: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, feeds)


def raised(proto: ModelProto, target: int) -> ModelProto:
    twin = ModelProto()
    twin.CopyFrom(proto)
    model = from_proto(twin)
    model.require_opset(target, "test")
    model.check()
    return model.to_proto()


def refused(proto: ModelProto, target: int, message: str) -> None:
    """Raising is refused with the name of the node, and the model stays as it was."""
    twin = ModelProto()
    twin.CopyFrom(proto)
    model = from_proto(twin)
    with pytest.raises(UnsupportedModelError, match=message):
        model.require_opset(target, "test")
    assert_same(proto, model.to_proto())
    assert model.upgrades == []


@pytest.mark.parametrize(("name", "target"), sorted(set(STEPS) - NO_KERNEL))
def test_outputs_stay_equal(name: str, target: int) -> None:
    proto, feeds = CASES[name]
    before = run(proto, feeds)
    written = raised(proto, target)
    assert written.opset_import[0].version == target
    after = run(written, feeds)
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "target"), sorted(NO_KERNEL))
def test_missing_kernels_are_still_missing(name: str, target: int) -> None:
    proto, feeds = CASES[name]
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented):
        run(raised(proto, target), feeds)


@pytest.mark.parametrize("key", sorted({*RULES, *MOVED} - BEFORE_ORT))
def test_every_rule_has_a_case(key: tuple[str, int]) -> None:
    op, version = key
    found = [n for n in CASES if n.split()[0] == f"{op}-{version}"]
    assert found
    for name in found:
        model = CASES[name][0]
        assert model.graph.node[1].op_type == op
        assert model.opset_import[0].version < version


@pytest.mark.parametrize(("name", "target"), [*STEPS, *((name, MAX_OPSET) for name in CASES)])
def test_raised_nodes_fit_the_schemas(name: str, target: int) -> None:
    written = raised(CASES[name][0], target)
    context = checker.C.CheckerContext()
    context.ir_version = written.ir_version
    context.opset_imports = {"": written.opset_import[0].version}
    for node in written.graph.node:
        checker.check_node(node, context)
    shape_inference.infer_shapes(written, check_type=True, strict_mode=True, data_prop=True)


def test_every_new_default_is_accounted_for() -> None:
    """A new attribute needs a rule if its default changes what nodes without it compute.

    Listed below are the attributes, new in some version, whose default means "as before".
    """
    neutral = {
        *("allowzero", "antialias", "axes", "axis", "batch_dims", "block_size", "ceil_mode"),
        *("dilations", "end", "keep_aspect_ratio_policy", "largest", "layout", "left_window_size"),
        *("mode", "noop_with_empty_axes", "output_dtype", "precision", "reduction"),
        *("right_window_size", "round_mode", "saturate", "scan_input_axes", "seed", "sorted"),
        *("select_last_index", "sparse_value", "start", "stash_type", "storage_order"),
        *("value_float", "value_floats", "value_int", "value_ints", "value_string"),
        "value_strings",
    }
    versions: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= MAX_OPSET:
            versions.setdefault(schema.name, []).append(schema)
    unknown = set()
    for op, schemas in versions.items():
        schemas.sort(key=lambda s: s.since_version)
        for old, new in itertools.pairwise(schemas):
            key = (op, new.since_version)
            if new.since_version > 7 and key not in RULES:
                added = set(new.attributes) - set(old.attributes) - neutral
                unknown |= {(*key, name) for name in added}
    assert not unknown


# -- what is refused --------------------------------------------------------------------------


def test_resize_that_may_shrink_is_refused() -> None:
    proto, _ = case(10, "Resize", IMAGE, np.float32([1, 1, 2, 2]))
    refused(proto, 11, "'the Resize'.*its scales are not constant")
    proto, _ = case(10, "Resize", IMAGE, fixed=(np.float32([1, 1, 2, 0.5]),))
    refused(proto, 13, "enlarges one axis and shrinks another")


def test_resize_mode_that_is_gone_is_refused() -> None:
    proto, _ = case(
        11,
        "Resize",
        IMAGE,
        fixed=(EMPTY, np.float32([1, 1, 2, 2])),
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )
    assert raised(proto, 12)
    refused(proto, 13, "tf_half_pixel_for_nn is gone")


def test_training_forms_are_refused() -> None:
    stats = (*FIVE[:3], abs(FIVE[3]))
    proto, _ = case(9, "BatchNormalization", X, fixed=stats, outputs=(1, 1, 1))
    refused(proto, 14, "training form")
    proto, _ = case(7, "BatchNormalization", X, fixed=stats, spatial=0)
    refused(proto, 9, "spatial=0 is gone")
    proto, _ = case(7, "Dropout", X, outputs=(1, 1))
    refused(proto, 13, "its mask is used")


def test_group_norm_of_unknown_width_is_refused() -> None:
    proto, _ = case(
        18,
        "GroupNormalization",
        X,
        fixed=(np.float32([2, 3]), np.float32([-1, 1])),
        declared=False,
        num_groups=2,
    )
    refused(proto, 21, "channels known")


def test_scan_8_is_refused() -> None:
    float_info = [helper.make_tensor_value_info(n, 1, None) for n in ("s", "e", "s2", "e2")]
    nodes = [helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Neg", ["s2"], ["e2"])]
    body = helper.make_graph(nodes, "b", float_info[:2], float_info[2:])
    scan = helper.make_node("Scan", ["", "i", "x"], ["y", "z"], body=body, num_scan_inputs=1)
    values = [helper.make_tensor_value_info(n, 1, None) for n in ("i", "x", "y", "z")]
    graph = helper.make_graph([scan], "g", values[:2], values[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)
    refused(proto, 13, "batch dimension is gone")


def test_versions_before_7() -> None:
    """onnxruntime starts at 7; what meant the same before is carried, the rest is refused."""
    broadcast, _ = case(6, "Add", X, fixed=(floats(6),), broadcast=1)
    add = raised(broadcast, 13)
    assert not add.graph.node[1].attribute
    refused(case(6, "Add", X, fixed=(floats(4),), broadcast=1, axis=1)[0], 13, "along an axis")
    tested, _ = case(6, "Dropout", X, ratio=0.5, is_test=1)
    assert np.array_equal(run(raised(tested, 13), {"in0": X})[0], -X)
    refused(case(6, "Dropout", X, ratio=0.5)[0], 13, "training form")
    stats = (*FIVE[:3], abs(FIVE[3]))
    raised(case(6, "BatchNormalization", X, fixed=stats, is_test=1)[0], 13)
    refused(case(6, "BatchNormalization", X, fixed=stats)[0], 13, "training form")
    raised(case(6, "PRelu", X, fixed=(np.float32([0.1]),))[0], 13)
    refused(case(6, "PRelu", X, fixed=(floats(4),))[0], 13, "one number per channel")


def test_refusal_in_a_later_step_leaves_earlier_nodes_alone() -> None:
    """Softmax is rewritten at 13, BatchNormalization refused at 14: neither may be changed."""
    proto, _ = case(11, "Softmax", X, declared=False)
    extra = case(9, "BatchNormalization", X, fixed=(*FIVE[:3], FIVE[0]), outputs=(1, 1))[0]
    bad = extra.graph.node[1]
    bad.output[:] = ["bn", "mean"]
    proto.graph.node.append(bad)
    proto.graph.initializer.extend(extra.graph.initializer)
    refused(proto, 14, "training form")


def test_more_than_onnxruntime_reads_is_refused() -> None:
    refused(CASES["Conv"][0], MAX_OPSET + 1, f"onnxruntime reads up to {MAX_OPSET}")


# -- what is kept -----------------------------------------------------------------------------


def test_nothing_happens_when_the_opset_is_enough() -> None:
    proto, _ = CASES["GridSample-20"]
    assert_same(proto, raised(proto, 13))
    model = from_proto(proto)
    raise_opset(model, 16, "test")
    assert model.upgrades == []


def test_raising_is_reported_and_ir_version_follows() -> None:
    model = from_proto(CASES["Conv"][0])
    model.require_opset(21, "4-bit weights")
    assert model.upgrades == ["opset 7 -> 21: 4-bit weights", "IR version 4 -> 10: opset 21"]
    assert (model.opset, model.ir_version) == (21, 10)


def test_metadata_of_rewritten_nodes_is_kept() -> None:
    proto = ModelProto()
    proto.CopyFrom(CASES["Clip-11"][0])
    node = proto.graph.node[1]
    node.doc_string = "about it"
    node.metadata_props.add(key="scope", value="layer")
    proto.metadata_props.add(key="author", value="me")
    written = raised(proto, 21)
    kept = written.graph.node[1]
    assert (kept.name, kept.doc_string) == ("the Clip", "about it")
    assert kept.metadata_props[0].value == "layer"
    assert written.metadata_props[0].value == "me"
    assert list(kept.input) == ["first", "the Clip.min", "the Clip.max"]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("declared", [True, False])
def test_bounds_have_the_type_of_their_tensor(dtype: Any, declared: bool) -> None:
    """Half precision too, where 'no bound' overflows."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto, _ = case(
        10, "Clip", X.astype(dtype), outputs=(kind,), declared=False, min=0.0, max=3.4e38
    )
    if declared:
        proto.graph.value_info.append(helper.make_tensor_value_info("first", kind, X.shape))
    (y,) = run(raised(proto, 13), {"in0": X.astype(dtype)})
    assert np.array_equal(y, np.maximum(-X.astype(dtype), 0))


def test_nodes_in_bodies_are_raised() -> None:
    def branch(name: str, *nodes: NodeProto) -> Any:
        return helper.make_graph(
            list(nodes), name, [], [helper.make_tensor_value_info(f"{name}.out", 1, None)]
        )

    choice = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch("a", helper.make_node("Clip", ["x"], ["a.out"], min=0.0)),
        else_branch=branch("b", helper.make_node("Softmax", ["x"], ["b.out"])),
    )
    graph = helper.make_graph(
        [choice],
        "g",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", 1, X.shape),
        ],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=4)
    for chosen in (True, False):
        feeds = {"c": np.array(chosen), "x": X}
        np.testing.assert_allclose(run(proto, feeds), run(raised(proto, 21), feeds), rtol=1e-6)


def test_private_and_foreign_operators_are_left_alone() -> None:
    """Operators that ONNX does not know at the model's version, though it may know them later."""
    proto, _ = case(13, "LayerNormalization", X, fixed=(floats(6),))
    proto.graph.node[1].attribute.append(helper.make_attribute("private", 1))
    proto.graph.node.append(helper.make_node("Clip", ["in0"], ["z"], domain="com.x", min=1.0))
    proto.graph.node.append(helper.make_node("InsertZeros", ["in0"], ["u"], stride=2))
    proto.opset_import.append(helper.make_opsetid("com.x", 1))
    written = raised(proto, 21)
    proto.opset_import[0].version, proto.ir_version = 21, 10
    assert_same(proto, written)


def test_attribute_that_no_schema_has_is_left_alone() -> None:
    """Some tools write 'axis' on QuantizeLinear at opset 10, where it does not exist yet."""
    proto, _ = CASES["QuantizeLinear"]
    twin = ModelProto()
    twin.CopyFrom(proto)
    twin.graph.node[1].attribute.append(helper.make_attribute("axis", 0))
    twin.graph.node[1].attribute.append(helper.make_attribute("vendor", "x"))
    assert len(raised(twin, 13).graph.node[1].attribute) == 2


def test_model_without_default_domain_gets_the_version_asked_for() -> None:
    proto = helper.make_model(
        helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("com.x", 1)]
    )
    proto.ir_version = 8
    model = from_proto(proto)
    model.require_opset(13, "test")
    assert model.opset == 13


def test_both_spellings_of_the_default_domain_are_raised() -> None:
    proto = ModelProto()
    proto.CopyFrom(CASES["Conv"][0])
    proto.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    assert {e.version for e in raised(proto, 13).opset_import} == {13}


# -- functions --------------------------------------------------------------------------------


def with_function(body: list[NodeProto], opset: int = 9) -> ModelProto:
    function = helper.make_function(
        "com.x", "f", ["i"], ["o"], body, [helper.make_opsetid("", opset)]
    )
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("f", ["x"], ["y"], domain="com.x")],
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, [2])],
        ),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.x", 1)],
        ir_version=8,
        functions=[function],
    )
    return proto


def test_function_of_unchanged_operators_is_restamped() -> None:
    proto = with_function([helper.make_node("Relu", ["i"], ["o"])], 14)
    written = raised(proto, 21)
    assert [e.version for e in written.functions[0].opset_import] == [21]
    assert run(written, {"x": np.float32([-1, 2])})[0].tolist() == [0, 2]
    assert proto.functions[0].opset_import[0].version == 14


def test_function_of_changed_operators_is_refused() -> None:
    proto = with_function([helper.make_node("Clip", ["i"], ["o"], min=0.0)])
    refused(proto, 13, "function 'com.x::f' uses Clip")


def test_function_of_changed_operators_in_a_body_is_refused() -> None:
    inner = helper.make_graph(
        [helper.make_node("Clip", ["i"], ["z"], min=0.0)],
        "b",
        [],
        [helper.make_tensor_value_info("z", 1, None)],
    )
    true = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True)))
    choice = helper.make_node("If", ["c"], ["o"], then_branch=inner, else_branch=inner)
    proto = with_function([true, choice])
    proto.functions[0].opset_import[0].version = 10
    # If and Constant changed at 11, so look at a step where only the Clip inside did.
    proto.functions[0].node[0].domain = proto.functions[0].node[1].domain = "com.x"
    refused(proto, 13, "function 'com.x::f' uses Clip")
