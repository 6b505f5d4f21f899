"""Sources that do not fit: the target's own quantizers, with the ranges of the source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.backend import Backend, backends, find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.canonical.metadata_texts import RANGE_SOURCES, texts_of
from onnxq.errors import BackendError, OnnxqError, OptionError
from onnxq.graph import Model, load
from onnxq.proof.prove import COST
from onnxq.quant.qparams import Role
from onnxq.workflows.convert import Conversion, convert
from onnxq.workflows.explain import explain
from onnxq.workflows.recast import MOST_NOTES, recast
from tests.models.build import log_quantize, parse, quantize, run, weight
from tests.models.networks import quantized, samples

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(scale=0.3, size=(8, 3, 3, 3)).astype(np.float32)
DATA = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
TAKE_FLOAT8 = ("academic", "academic-nlp", "openvino", "tensorrt", "tensorrt-nlp")
FOR_TRANSFORMERS = ("tensorrt-nlp", "academic-nlp")
"""These quantize no convolution."""
TARGETS = [n for n, b in backends().items() if isinstance(b, Backend) and b.writes]


def network(second: str = "b = Sigmoid(c)") -> Model:
    """x -> Conv -> Relu, read by a Conv and by another operator."""
    first, last = (
        ", ".join(repr(float(v)) for v in values.reshape(-1))
        for values in (WEIGHTS, np.resize(WEIGHTS, (4, 8, 1, 1)))
    )
    return parse(f"""g (float[1,3,8,8] x) => (float[1,4,6,6] y, float[1,8,6,6] b)
        <float[8,3,3,3] w = {{{first}}}, float[4,8,1,1] v = {{{last}}}> {{
        a = Conv(x, w) c = Relu(a) y = Conv(c, v) {second}
    }}""")


def float8() -> Model:
    model = network()
    for name, scale in (("x", 0.01), ("c", 0.01)):
        quantize(model, name, qtype="float8e4m3fn", scale=np.float32(scale))
    for name in ("w", "v"):
        weight(model, name, qtype="float8e4m3fn", scale=np.float32(0.01))
    return model


def logarithmic() -> Model:
    model = network()
    for name, reach in (("x", 4.0), ("c", 4.0), ("w", 1.2), ("v", 1.2)):
        log_quantize(model, name, reach)
    return model


def recast_to(model: Model, target: str, **options: object) -> Conversion:
    return convert(model, target, allow_requantize=True, data=DATA, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", [float8, logarithmic])
def test_float8_and_logarithmic_grids_go_to_every_target(source: object, target: str) -> None:
    model = source()  # type: ignore[operator]
    takes = source is float8 and target in TAKE_FLOAT8
    if target in FOR_TRANSFORMERS and not takes:
        with pytest.raises(BackendError, match=f"{target} quantizes none of the operators"):
            recast_to(model, target)
        return
    done = recast_to(model, target)
    if takes:
        assert not done.range_sources
        return
    assert done.proven
    assert done.cost is not None
    # 8 bits beside float8's 4: what is left is the source's own rounding and one of 8 bits.
    assert min(o.sqnr for o in done.cost.outputs) > 20
    assert not any(done.backend.scheme.violations(row) for row in done.table)


def test_it_is_proven_exactly_and_says_where_each_range_comes_from(tmp_path: Path) -> None:
    done = recast_to(float8(), "tvm")
    assert done.change is not None
    assert done.change.traces[0].name == "recast"
    assert all(p.passed for p in done.proofs)
    assert {"x", "c", "w", "v"} <= set(done.range_sources)
    assert "the float8e4m3fn quantizer" in done.range_sources["x"]
    assert done.to_json()["range_sources"] == done.range_sources
    (told,) = (trace.notes for trace in done.traces if trace.name == "recast")
    assert told[0].startswith("the quantizers of the source cannot be moved one by one")
    done.save(tmp_path)
    deployed = load(tmp_path / "model_qdq.onnx")
    assert texts_of(deployed, RANGE_SOURCES) == done.range_sources
    assert f"range: {done.range_sources['x']}" in explain(deployed, "x", "tvm").origin


def test_what_fits_is_not_recast() -> None:
    model = quantized("conv1d", find_backend("onnxruntime"))
    done = convert(model, "tensorrt", data=samples("conv1d"), allow_requantize=True)
    assert not done.range_sources
    assert done.change is not None
    assert "recast" not in [t.name for t in done.change.traces]


def test_without_permission_nothing_is_recast() -> None:
    with pytest.raises(BackendError, match="not supported by tvm"):
        convert(float8(), "tvm")


def test_a_tensor_that_only_some_consumers_see_quantized() -> None:
    """A side file has one range for all of them."""
    model = network()
    weight(model, "w", scale=np.float32(0.01))
    weight(model, "v", scale=np.float32(0.01))
    quantize(model, "x", scale=np.float32(0.03))
    quantize(model, "c", scale=np.float32(0.03))
    quantizer = next(n for n in model.nodes(FAKE_QUANTIZE) if params_of(n).tensor == "c")
    neg = model.nodes("Sigmoid")[0]
    neg.inputs[0] = quantizer.inputs[0]
    model.refresh()
    done = recast_to(model, "snpe")
    assert done.proven
    assert done.range_sources["c"].startswith("the int8 quantizer")
    with pytest.raises(OnnxqError, match="only some of its consumers"):
        convert(model, "snpe")


def test_weights_stay_on_the_grid_of_the_source_if_the_target_has_it() -> None:
    model = network()
    weight(model, "w", scale=np.float32(0.013))
    weight(model, "v", scale=np.float32(0.013))
    quantize(model, "x", qtype="float8e4m3fn", scale=np.float32(0.01))
    done = recast_to(model, "tvm")
    (row,) = (r for r in done.table.of(Role.WEIGHT) if r.tensor == "w")
    assert row.scale == np.float32(0.013)
    assert done.range_sources["w"] == "the int8 grid of the source"


def test_missing_ranges_come_from_data_or_stay_float() -> None:
    """The source quantizes the input and the weights, the target also what is in between."""
    model = network()
    quantize(model, "x", qtype="float8e4m3fn", scale=np.float32(0.01))
    weight(model, "w", scale=np.float32(0.01))
    weight(model, "v", scale=np.float32(0.01))
    with_data = recast_to(model, "tvm")
    assert with_data.proven
    assert with_data.range_sources["c"] == "min-max over 4 samples"
    row = next(r for r in with_data.table.of(Role.ACTIVATION) if r.tensor == "c")
    top = max(float(run(network("b = Identity(c)"), d["x"])[1].max()) for d in DATA)
    assert float(row.range[1]) == pytest.approx(top, rel=0.02)  # weights are rounded there
    without = convert(model, "tvm", allow_requantize=True, count=1)
    assert "c" not in without.range_sources
    assert any("'c' stays float: no range is known" in note for note in without.notes)
    assert any("give typical inputs with --data" in note for note in without.notes)


def test_the_range_of_nothing_but_the_input_comes_from_data() -> None:
    model = network()
    quantize(model, "c", scale=np.float32(0.03))
    weight(model, "w", qtype="float8e4m3fn", scale=np.float32(0.01))
    weight(model, "v", qtype="float8e4m3fn", scale=np.float32(0.01))
    done = recast_to(model, "tvm")
    assert done.range_sources["c"].startswith("the int8 quantizer")
    assert done.range_sources["x"] == "min-max over 4 samples"


def test_ranges_of_float8_give_way_to_what_occurs() -> None:
    """Tools let float8 reach ten times as far as the values: 8 bits would have a tenth left."""
    model = network()
    for name in ("x", "c"):
        quantize(model, name, qtype="float8e4m3fn", scale=np.float32(0.1))  # up to 44.8
    seen = recast_to(model, "onnxruntime")
    row = next(r for r in seen.table.of(Role.ACTIVATION) if r.tensor == "x")
    assert float(row.range[1]) == pytest.approx(max(d["x"].max() for d in DATA), rel=0.02)
    assert seen.range_sources["x"].startswith("min-max over 4 samples, within the float8e4m3fn")
    assert seen.cost is not None
    blind = convert(model, "onnxruntime", allow_requantize=True, count=1)
    row = next(r for r in blind.table.of(Role.ACTIVATION) if r.tensor == "x")
    assert float(row.range[1]) == pytest.approx(44.8, rel=0.02)
    (told,) = (trace.notes for trace in blind.traces if trace.name == "recast")
    assert any("may be far wider than the values" in note for note in told)


def test_weights_alone_need_data_where_a_file_has_no_place_for_them() -> None:
    model = weight(network("b = Exp(c)"), "w", qtype="int4", scale=np.float32(0.1))
    with pytest.raises(OnnxqError) as caught:
        convert(model, "nnie", allow_requantize=True)
    assert "give typical inputs with --data" in caught.value.fix
    assert recast_to(model, "nnie").proven


def test_what_cannot_be_written_without_data_says_so_and_works_with_it() -> None:
    model = network("b = Exp(c)")
    weight(model, "w", qtype="int4", scale=np.float32(0.1))
    weight(model, "v", qtype="int4", scale=np.float32(0.1))
    with pytest.raises(OnnxqError) as caught:
        convert(model, "tengine", allow_requantize=True)
    assert "give typical inputs with --data" in caught.value.fix
    assert "no range is known" in caught.value.fix
    assert recast_to(model, "tengine").proven


def test_constants_stay_float_where_a_file_has_no_place_for_them() -> None:
    """A factor per channel is quantized like an activation; STPU's file has weights of layers."""
    factor = "k = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]>() b = Mul(c, k)"
    model = network(factor)
    for name in ("x", "c", "b"):
        quantize(model, name, qtype="float8e4m3fn", scale=np.float32(0.05))
    first = recast(model, find_backend("stpu"), why="it is float8", data=DATA)
    assert first.constants
    assert any(source == "its own values" for source in first.sources.values())
    made = recast_to(model, "stpu")
    assert made.proven
    assert not any(source == "its own values" for source in made.range_sources.values())


LINEAR = """g (float[4,8] x) => (float[4,8] y) <float[8,8] w = {WEIGHTS}> {
    m = MatMul(x, w) y = Add(m, x)
}""".replace("WEIGHTS", ", ".join(repr(float(v)) for v in np.resize(WEIGHTS, 64)))


def test_a_network_never_loses_all_its_quantizers() -> None:
    """TVM runs products in float: without the ranges of the sum, nothing would be quantized."""
    model = weight(parse(LINEAR), "w", qtype="float8e4m3fn", scale=np.float32(0.01))
    with pytest.raises(BackendError, match="none of the quantizers of tvm has a range") as caught:
        convert(model, "tvm", allow_requantize=True)
    assert "give typical inputs with --data" in caught.value.fix
    data = [{"x": RNG.normal(size=(4, 8)).astype(np.float32)}]
    done = convert(model, "tvm", allow_requantize=True, data=data)
    assert done.proven
    assert "x" in done.range_sources
    assert "tvm has no quantizer at 1 tensor that the source quantizes: 'w'" in done.notes


def test_the_user_may_set_the_limit_of_the_cost() -> None:
    reached = min(o.sqnr for o in recast_to(float8(), "tvm").cost.outputs)  # type: ignore[union-attr]
    assert recast_to(float8(), "tvm", min_sqnr=reached - 1).proven
    failed = recast_to(float8(), "tvm", min_sqnr=reached + 1)
    assert [p.what for p in failed.proofs if not p.passed] == [COST]
    with pytest.raises(OptionError, match="no ratio"):
        recast_to(float8(), "tvm", min_sqnr=float("nan"))


def test_many_float_tensors_are_listed_in_few_lines() -> None:
    chain = " ".join(f"t{i + 1} = Conv(t{i}, w)" for i in range(30))
    model = parse(
        f"g (float[1,1,4,4] t0) => (float[1,1,4,4] t30) <float[1,1,1,1] w = {{0.5}}> {{ {chain} }}"
    )
    weight(model, "w", qtype="float8e4m3fn", scale=np.float32(0.01))
    made = recast(model, find_backend("tensorrt"), why="it is float8")
    assert len(made.notes) == MOST_NOTES + 2
    assert made.notes[-2] == "and 20 more"


def test_the_source_is_left_as_it_was() -> None:
    model = float8()
    before = model.to_proto().SerializeToString(deterministic=True)
    recast_to(model, "onnxruntime")
    assert model.to_proto().SerializeToString(deterministic=True) == before
    assert onnxq.verify(model, float8(), DATA).passed
