"""OpenVINO's FakeQuantize becomes the canonical op: against its definition, run by onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.dialects import openvino
from onnxq.errors import QParamsError
from onnxq.graph import Model, from_proto
from onnxq.graph.constants import array
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions
from onnxq.storage.node_metadata import QUANT_MIN, QUANT_TYPE, SCALE, add_metadata
from passes.read_openvino import ReadOpenvino
from passes.to_qdq import ToQdq
from tests.checks.dialect_round_trip import FIXTURES, first_output, fixture, fixture_inputs
from tests.models.build import apply, bit_equal, ops, reasons, run
from tests.models.dialect_functions import runnable
from tests.models.zoo import ZOO, inputs

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(0, 3, (2, 4, 5)).astype(np.float32)
W = RANDOM.normal(0, 0.3, (4, 5)).astype(np.float32)
INFO = helper.make_tensor_value_info


def single(*bounds: object, domain: str = openvino.DOMAIN, **attrs: object) -> Model:
    """One FakeQuantize on the input x of shape [2,4,5]; two bounds serve input and output."""
    four = bounds if len(bounds) != 2 else bounds * 2
    constants = [numpy_helper.from_array(np.asarray(b, np.float32), f"b{i}")
                 for i, b in enumerate(four)]  # fmt: skip
    names = ["x", *(c.name for c in constants)]
    node = helper.make_node("FakeQuantize", names, ["y"], name="quantizer", domain=domain, **attrs)
    graph = helper.make_graph(
        [node], "g", [INFO("x", 1, X.shape)], [INFO("y", 1, X.shape)], initializer=constants
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 17 if not domain else 1)]
    return from_proto(
        helper.make_model(graph, opset_imports=imports[: 2 if domain else 1], ir_version=8)
    )


def close_in_codes(have: np.ndarray, want: np.ndarray) -> None:
    """Same values up to the rounding of ol + q / (L - 1) * (oh - ol) in float32."""
    np.testing.assert_allclose(have, want, rtol=0, atol=2e-6 * np.abs(want).max())


@pytest.mark.parametrize(
    ("low", "high", "levels", "kind", "zero", "lo"),
    [
        (-12.8, 12.7, 256, "int8", 0, -128),
        (-12.7, 12.7, 255, "int8", 0, -127),
        (0, 25.5, 256, "uint8", 0, 0),
        (-10.0, 15.5, 256, "uint8", 100, 0),
        (-0.8, 0.7, 16, "int4", 0, -8),
        (0, 1.5, 16, "uint4", 0, 0),
        (-3.2768, 3.2767, 65536, "int16", 0, -32768),
        (0, 1, 2, "uint2", 0, 0),
    ],
)
def test_grid(low: float, high: float, levels: int, kind: str, zero: int, lo: int) -> None:
    model = single(low, high, levels=levels)
    read, _ = apply(model, ReadOpenvino())
    assert ops(read) == ["FakeQuantize"]
    assert openvino.DOMAIN not in read.opsets
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, int(params.zero_point), params.lo) == (kind, zero, lo)
    assert params.hi == lo + levels - 1
    assert params.tensor == "x"
    close_in_codes(run(read, X)[0], run(runnable(model), X)[0])


def test_empty_domain() -> None:
    read, _ = apply(single(-12.8, 12.7, levels=256, domain=""), ReadOpenvino())
    assert read.nodes(FAKE_QUANTIZE)


@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 1), 1), ((1, 4, 1), 1), ((2, 1, 1), 0), ((5,), 2)]
)
def test_bounds_per_channel(shape: tuple[int, ...], axis: int) -> None:
    end = np.linspace(3, 6, max(shape)).reshape(shape)
    model = single(-end, end, levels=255)
    read, _ = apply(model, ReadOpenvino())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).axis == axis
    close_in_codes(run(read, X)[0], run(runnable(model), X)[0])


@pytest.mark.parametrize("factor", [2.0, 0.3, -1.0])
def test_another_output_range_is_a_factor(factor: float) -> None:
    low, high = np.float32(-12.8), np.float32(12.7)
    model = single(low, high, low * factor, high * factor, levels=256)
    read, trace = apply(model, ReadOpenvino())
    assert ops(read) == ["FakeQuantize", "Mul"]
    assert "rescaled" in trace.rewrites[0]
    close_in_codes(run(read, X)[0], run(runnable(model), X)[0])


def test_output_range_per_channel() -> None:
    factor = np.float32([1, 2, 3, 4]).reshape(4, 1)
    model = single(-1.28, 1.27, factor * -1.28, factor * 1.27, levels=256)
    read, _ = apply(model, ReadOpenvino())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).axis is None
    close_in_codes(run(read, X)[0], run(runnable(model), X)[0])


@pytest.mark.parametrize(
    ("bounds", "levels", "why"),
    [
        ((-12.85, 12.7), 256, "between two levels of its input range"),
        ((1.0, 2.0), 2, "outside its input range"),
        ((-1, 1), 1 << 20, "more than 16 bits"),
        ((-12.8, 12.7, 0, 25.5), 256, "zero is at different levels"),
        ((-12.8, 12.7, -12.83, 12.7), 256, "between two levels of its output range"),
        ((-12.8, 12.7, 3, 3), 256, "output range is empty"),
        ((-np.ones((4, 5)), np.ones((4, 5))), 255, "one axis"),
    ],
)
def test_what_cannot_be_read_stays_with_the_reason(
    bounds: tuple[object, ...], levels: int, why: str
) -> None:
    read, trace = apply(single(*bounds, levels=levels), ReadOpenvino())
    assert [(n.op, n.domain) for n in read.nodes()] == [("FakeQuantize", openvino.DOMAIN)]
    assert why in reasons(trace)


@pytest.mark.parametrize(
    ("bounds", "attrs", "word"),
    [
        ((float("nan"), 1), {"levels": 256}, "lower input bound 'b0' is not a finite"),
        ((1.0, 1.0), {"levels": 256}, "lower input bound is not below"),
        ((1.0, -1.0), {"levels": 256}, "lower input bound is not below"),
        ((-1, 1), {}, "0 levels"),
        ((-1, 1, -1), {"levels": 256}, "no upper output bound"),
        ((-np.ones((3, 1)), np.ones((3, 1))), {"levels": 255}, "3 scales for 4"),
    ],
)
def test_broken_bounds_are_an_error_that_names_the_node(
    bounds: tuple[object, ...], attrs: dict[str, object], word: str
) -> None:
    with pytest.raises(QParamsError, match=f"'quantizer'.*{word}"):
        apply(single(*bounds, **attrs), ReadOpenvino())


def test_bounds_computed_at_run_time_stay() -> None:
    proto = single(-1, 1, levels=255).to_proto()
    del proto.graph.initializer[0]
    proto.graph.input.append(INFO("b0", 1, []))
    _, trace = apply(from_proto(proto), ReadOpenvino())
    assert "'b0' is computed at run time" in reasons(trace)


# -- plain vectors ----------------------------------------------------------------------------


def layer(op: str, weight: np.ndarray, count: int, **attrs: object) -> Model:
    """A layer whose weight has `count` bounds in a plain vector."""
    end = np.linspace(0.5, 1, count, dtype=np.float32) * 127
    tensors = {"w": weight, "low": -end, "high": end}
    nodes = [
        helper.make_node("FakeQuantize", ["w", "low", "high", "low", "high"], ["q"],
                         domain=openvino.DOMAIN, levels=255),
        helper.make_node(op, ["x", "q"], ["y"], **attrs),
    ]  # fmt: skip
    shape = (1, weight.shape[op != "ConvTranspose"], 5, 5) if weight.ndim == 4 else (2, 5)
    graph = helper.make_graph(
        nodes, "g", [INFO("x", 1, shape)], [INFO("y", 1, None)],
        initializer=[numpy_helper.from_array(v, k) for k, v in tensors.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return from_proto(helper.make_model(graph, opset_imports=imports, ir_version=8))


@pytest.mark.parametrize(
    ("op", "shape", "count", "attrs", "axis"),
    [
        ("Conv", (4, 3, 2, 2), 4, {}, 0),
        ("ConvTranspose", (4, 6, 2, 2), 6, {}, 1),
        ("Gemm", (3, 5), 3, {"transB": 1}, 0),
    ],
)
def test_vector_of_bounds_runs_along_the_output_channels(
    op: str, shape: tuple[int, ...], count: int, attrs: dict[str, object], axis: int
) -> None:
    weight = RANDOM.normal(0, 40, shape).astype(np.float32)
    read, trace = apply(layer(op, weight, count, **attrs), ReadOpenvino())
    assert params_of(read.nodes(FAKE_QUANTIZE)[0]).axis == axis
    assert any("'w'" in note and "output channel" in note for note in trace.notes)


def test_vector_that_fits_nowhere_is_an_error() -> None:
    weight = np.ones((4, 3, 2, 2), np.float32)
    with pytest.raises(QParamsError, match="do not broadcast"):
        apply(layer("Conv", weight, 3), ReadOpenvino())


# -- metadata ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "kind", "lo"),
    [
        ({QUANT_TYPE: "uint8", QUANT_MIN: "0"}, "uint8", 0),
        ({QUANT_TYPE: "int16", QUANT_MIN: "-300"}, "int16", -300),
        ({QUANT_TYPE: "int8", QUANT_MIN: "0"}, "int8", -128),
        ({QUANT_TYPE: "uint8", QUANT_MIN: "x"}, "int8", -128),
        ({QUANT_TYPE: "nonsense", QUANT_MIN: "0"}, "int8", -128),
        ({SCALE: "[0.1, 0.2]"}, "int8", -128),
        ({SCALE: "not json"}, "int8", -128),
        ({SCALE: "0.2"}, "int8", -128),
    ],
)
def test_metadata_counts_where_it_fits_the_bounds(
    entries: dict[str, str], kind: str, lo: int
) -> None:
    model = single(-12.8, 12.7, levels=256)
    add_metadata(model.nodes(openvino.FAKE_QUANTIZE)[0], entries)
    read, _ = apply(model, ReadOpenvino())
    params = params_of(read.nodes(FAKE_QUANTIZE)[0])
    assert (params.qtype.name, params.lo) == (kind, lo)
    assert params.scale == np.float32(0.1)
    plain, _ = apply(single(-12.8, 12.7, levels=256), ReadOpenvino())
    assert bit_equal(run(read, X), run(plain, X))


# -- whole models -----------------------------------------------------------------------------


def test_zoo_computes_the_same() -> None:
    proto = ZOO["openvino_cnn"]()
    read, trace = apply(from_proto(proto), ReadOpenvino())
    assert not trace.skips
    for seed in range(4):
        feeds = inputs(proto, seed)
        want = sessions.reference(proto).run(feeds)
        for name, value in sessions.reference(read).run(feeds).items():
            close_in_codes(value, want[name])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(1, 255), st.integers(0, 255), st.integers(0, 2**16))
def test_random_grids_agree_except_half_way_between_levels(
    last: int, level: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    zero = level % (last + 1)
    scale = np.float32(random.uniform(1, 2) * 2.0 ** random.integers(-10, 3))
    grid = QParams("x", qtype("uint8"), scale, zero, hi=last)
    low, high = openvino.ends(grid)
    x = random.uniform(low - scale, high + scale, X.shape).astype(np.float32)
    model = single(low, high, levels=last + 1)
    read, trace = apply(model, ReadOpenvino())
    assert not trace.skips
    (have,), (want,) = run(read, x), run(runnable(model), x)
    part = np.abs(x.astype(np.float64) / scale) % 1
    clear = np.abs(part - 0.5) > 1e-4
    np.testing.assert_allclose(have[clear], want[clear], rtol=0, atol=1e-3 * scale)


@pytest.mark.skipif(not FIXTURES.exists(), reason="no models of other tools beside the repository")
@pytest.mark.parametrize(("kind", "axis"), [("classic", 0), ("head", 1)])
def test_mqbench(kind: str, axis: int) -> None:
    """MQBench trains weights in -64..63 and writes them as 256 levels of the same step.

    So the largest weight of a channel, 63.5 steps, has the code 64 in the file and 63 in MQBench,
    whose outputs are near but no oracle to the bit; its scales are, and all of them come back.
    The classic exporter shapes ConvTranspose's bounds along axis 0, although axis 1 was trained.
    """
    name = f"A1/mqbench-{kind}-openvino-fakequantize"
    read, trace = apply(fixture(name), ReadOpenvino())
    assert (len(trace.rewrites), trace.skips) == (18, [])
    grids = {p.tensor: p for p in map(params_of, read.nodes(FAKE_QUANTIZE))}
    assert grids["up.weight"].axis == axis
    for node in fixture("A1/mqbench-classic-openvino").nodes():
        if "Affine" in node.op:
            scale = array(node.inputs[1])
            assert scale is not None
            have = grids[node.inputs[0].name].scale
            assert have.tobytes() == scale.astype(np.float32).tobytes(), node.inputs[0].name
    written, _ = apply(read, ToQdq())
    expected = np.load(FIXTURES / name / "expected.npz")["y"]
    for number, x in enumerate(fixture_inputs(name)):
        have = first_output(read, x)
        assert bit_equal([first_output(written, x)], [have])
        assert np.abs(have - expected[number]).max() < 0.03 * np.abs(expected).max()
