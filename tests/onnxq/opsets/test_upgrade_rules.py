"""Every rule keeps what the operator computes, or refuses the node by name."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import (
    checker,
    defs,
    helper,
    shape_inference,
)

from onnxq.graph import MAX_OPSET
from onnxq.opsets.opset_upgrade import MOVED, RULES
from tests.checks.plain_run import run_plain
from tests.models.opset_cases import (
    CASES,
    EMPTY,
    FIVE,
    IMAGE,
    STEPS,
    X,
    case,
    floats,
    raised,
    refused,
)

NO_KERNEL = {("RoiAlign-16", 25)}
"""What onnxruntime 1.31 does not implement."""

BEFORE_ORT = {("BatchNormalization", 7), ("Dropout", 7), ("PRelu", 7), ("Scan", 9)} | {
    key for key in RULES if key[1] == 7
}
"""Changes of versions that onnxruntime does not run, or that are always refused: tested below."""


@pytest.mark.parametrize(("name", "target"), sorted(set(STEPS) - NO_KERNEL))
def test_outputs_stay_equal(name: str, target: int) -> None:
    proto, feeds = CASES[name]
    before = run_plain(proto, feeds)
    written = raised(proto, target)
    assert written.opset_import[0].version == target
    after = run_plain(written, feeds)
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "target"), sorted(NO_KERNEL))
def test_missing_kernels_are_still_missing(name: str, target: int) -> None:
    proto, feeds = CASES[name]
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.NotImplemented):
        run_plain(raised(proto, target), feeds)


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
    assert np.array_equal(run_plain(raised(tested, 13), {"in0": X})[0], -X)
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
    refused(CASES["Conv"][0], MAX_OPSET + 1, f"onnxruntime supports at most {MAX_OPSET}")
