"""What does not fit a target: restated where that is exact, moved where allowed, else refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxq.backend import find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import BackendError
from onnxq.graph import Model
from onnxq.pipeline import Pipeline
from onnxq.proof.prove import COST
from onnxq.proof.verify import verify
from onnxq.quant.qparams import Role
from onnxq.reading import canonical
from onnxq.running.sessions import reference
from onnxq.workflows.convert import convert
from onnxq.workflows.fit_to_backend import fit, legal_pipeline
from passes.drop_identity import DropIdentity
from passes.phases import READ
from passes.quantize_bias import QuantizeBias
from tests.models.build import parse, quantize, weight
from tests.models.networks import quantized, samples

ORT, TRT = find_backend("onnxruntime"), find_backend("tensorrt")


def test_without_permission_one_error_names_all_tensors_and_the_option() -> None:
    model = quantized("conv1d", ORT)
    wrong = {
        params.tensor
        for node in model.nodes(FAKE_QUANTIZE)
        if (params := params_of(node)).role is Role.ACTIVATION
    }
    with pytest.raises(BackendError) as caught:
        fit(model, TRT)
    assert all(f"'{name}'" in caught.value.what for name in wrong)
    assert "--allow-requantize" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("backend", "stated", "message"),
    [
        ("tensorrt", "uint8 {140}", "uint8 zero point 140 (must be 128)"),
        ("ncnn", "uint8 {128}", "uint8 range 0..255 (must be 1..255)"),
        ("ncnn", "uint8 {0}", "uint8 zero point 0 (must be 128)"),
        ("tensorrt", "int8 {-3}", "'x' (activation): zero point -3 (must be 0)"),
        ("tensorrt", "uint16 {300}", "type uint16 (accepted: int8, float8e4m3fn); zero point 300"),
    ],
)
def test_a_refusal_has_the_numbers_of_the_file(
    tmp_path: Path, backend: str, stated: str, message: str
) -> None:
    """Passes turn uint8 into the int8 of these targets before the scheme is checked."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 21]> g (float[1,4] x) => (float[1,4] y)
        <float s = {{0.1}}, {stated.split()[0]} z = {stated.split()[1]}> {{
            q = QuantizeLinear (x, s, z)
            d = DequantizeLinear (q, s, z)
            y = Neg (d)
        }}"""
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(BackendError) as caught:
        convert(path, backend)
    assert message in caught.value.what


@pytest.mark.parametrize("network", ["resnet", "mobilenet", "unet", "transformer", "conv1d"])
def test_with_permission_it_is_converted_and_the_cost_is_measured(network: str) -> None:
    """Asymmetric uint8 to TensorRT's symmetric int8: twice the step, so a few steps in the end."""
    done = convert(quantized(network, ORT), TRT, data=samples(network), allow_requantize=True)
    assert done.proven
    assert done.change is not None
    assert done.cost is not None
    (output,) = done.cost.outputs
    assert 0 < output.max < 16
    assert output.mean < 3
    changed = next(t for t in done.traces if t.name == "approximate-grids").rewrites
    assert all("% of its range" in text for text in changed)
    assert done.proofs[-1].what == "requantized (cost)"
    assert any("approximate-grids changes what the model computes" in note for note in done.notes)


@pytest.mark.parametrize("source", ["onnxruntime", "tensorrt"])
@pytest.mark.parametrize("target", ["vitis", "stpu", "tengine", "openvino"])
def test_what_was_made_for_one_target_goes_to_another(source: str, target: str) -> None:
    """Power-of-two scales, -127..127 only, whole uint8 per tensor, symmetric weights."""
    model = quantized("resnet", find_backend(source))
    done = convert(model, target, data=samples("resnet"), allow_requantize=True)
    assert done.proven
    assert not any(done.backend.scheme.violations(row) for row in done.table)


def test_permission_changes_nothing_where_all_fits() -> None:
    model = quantized("conv1d", TRT)
    made = fit(model, TRT, allow_requantize=True)
    assert made.change is None


def test_a_cost_that_leaves_nothing_of_the_network_fails() -> None:
    """16 bits over a huge range, of which the data use a few steps: 8 bits cannot tell them."""
    model = parse("g (float[1,64] x) => (float[1,64] y) { a = Neg(x) y = Neg(a) }")
    for name in ("x", "y"):
        quantize(model, name, qtype="int16", scale=np.float32(1.0))
    data = [{"x": np.random.default_rng(0).uniform(-100, 100, (1, 64)).astype(np.float32)}]
    done = convert(model, TRT, data=data, allow_requantize=True)
    assert not done.proven
    failed = [p.what for p in done.proofs if not p.passed]
    assert failed == ["requantized (cost)"]


def test_what_is_exact_needs_no_permission() -> None:
    """uint4 around 8 and 4-bit codes in int8 are what TensorRT has, in other words."""
    model = parse("g (float[1,64] x) => (float[1,64] y) { a = Neg(x) y = Neg(a) }")
    quantize(model, "x", qtype="uint4", zero_point=8, scale=np.float32(0.25))
    done = convert(model, TRT)
    assert done.proven
    assert done.change is None
    feed = {"x": np.linspace(-4, 4, 64, dtype=np.float32)[None]}
    (want,) = reference(model).run(feed).values()
    (got,) = reference(done.model).run(feed).values()
    np.testing.assert_array_equal(got, want)


def test_what_still_breaks_a_rule_is_refused_without_naming_the_option() -> None:
    model = parse("g (float[1,64] x) => (float[1,64] y) { y = Neg(x) }", opset=19)
    quantize(model, "x", qtype="float8e5m2")
    with pytest.raises(BackendError) as caught:
        fit(model, TRT, allow_requantize=True)
    assert "float8e5m2" in caught.value.what
    assert "--allow-requantize" not in str(caught.value.fix)


def test_biases_are_rounded_afterwards() -> None:
    backend = replace(TRT, pipeline=Pipeline(*TRT.pipeline, QuantizeBias()), variants={})
    names = [step.name for step in legal_pipeline(backend, allow_requantize=True)]
    assert names[-3:] == ["fit-grids", "approximate-grids", "quantize-bias"]


def test_outputs_that_collapse_fail_however_small_they_are() -> None:
    """16 bits over +-655, data of +-3: within the limits of 8 bits, and yet all zeros."""
    model = parse("g (float[1,64] x) => (float[1,64] y) { a = Neg(x) y = Neg(a) }")
    for name in ("x", "y"):
        quantize(model, name, qtype="uint16", zero_point=32768, scale=np.float32(0.02))
    data = [{"x": np.random.default_rng(0).uniform(-2, 2, (1, 64)).astype(np.float32)}]
    done = convert(model, TRT, data=data, allow_requantize=True)
    assert [p.what for p in done.proofs if not p.passed] == [COST]
    assert done.proofs[-1].report.outputs[0].collapsed


@pytest.mark.parametrize("target", ["qnn", "rknn", "stpu", "ncnn", "mnn"])
def test_moved_weights_are_those_that_the_writer_takes(target: str) -> None:
    """Weights that use -128, and ones with a zero point, between rules on -127..127 and on all."""
    model = parse(
        """g (float[1,4] x) => (float[1,3] y)
        <float[4,4] v = {-12.8, 1, 2, 3, 4, 5, 6, 7, 8, -9, 1, 1, 2, 0, 3, 12.7},
         float[4,3] w = {1, -2, 3, 4, 5, -6, 7, 8, 9, 1, 2, 3}>
        { a = MatMul(x, v) y = MatMul(a, w) }"""
    )
    for node in model.nodes():
        node.name = f"make_{node.outputs[0].name}"
    quantize(model, "x", qtype="uint8", zero_point=120, scale=np.float32(0.03))
    quantize(model, "a", qtype="uint8", zero_point=128, scale=np.float32(1.0))
    weight(model, "v", scale=np.float32(0.1))
    weight(model, "w", qtype="uint8", zero_point=100, scale=np.float32(0.08))
    assert convert(model, target, allow_requantize=True).proven


FACTOR = """g (float[1,4] x) => (float[1,4] y) <float[4] k = {0.1, 0.9, 0.4, 0.2},
    float[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> {
    h = Mul(x, k)
    y = MatMul(h, w)
}"""


@pytest.mark.parametrize("target", ["qnn", "openvino"])
@pytest.mark.parametrize(("kind", "zero"), [("uint8", 17), ("int8", -111)])
def test_a_constant_that_is_no_weight_may_lie_on_the_grid_of_activations(
    target: str, kind: str, zero: int
) -> None:
    model = parse(FACTOR)
    for name in ("x", "h", "y"):
        quantize(model, name, qtype="uint8", zero_point=120)
    weight(model, "k", qtype=kind, zero_point=zero, scale=np.float32(0.004))
    weight(model, "w", hi=63, lo=-63)
    done = convert(model, target)
    assert done.proven
    assert done.change is None


def test_a_weight_may_not() -> None:
    model = parse(FACTOR)
    for name in ("x", "h", "y"):
        quantize(model, name, qtype="uint8", zero_point=120)
    weight(model, "w", qtype="uint8", zero_point=17, scale=np.float32(0.004))
    with pytest.raises(BackendError, match=r"'w' \(weight\): type uint8 .*; zero point 17"):
        convert(model, "openvino")


def test_readers_are_left_out_at_the_head_of_a_pipeline_alone() -> None:
    """What a backend puts before a reader may give it something to read."""
    model = quantized("conv1d", TRT)
    plain = [step for step in TRT.pipeline if step not in READ]
    heads = {(): 0, READ: 0, READ[:4]: 0, (DropIdentity(), *READ): 1 + len(READ)}
    made = []
    for head, run in heads.items():
        fitted = fit(model, replace(TRT, pipeline=Pipeline(*head, *plain), variants={}))
        assert len(fitted.traces) == run + len(plain) + 1  # and fit-grids
        made.append(fitted.model.to_proto())
    assert all(proto == made[0] for proto in made)


NARROW = "g (float[1,8] x) => (float[1,8] y) { y = Flatten(x) }"


def narrow() -> Model:
    """Trained on -127..127, which TensorRT widens by a code."""
    return quantize(parse(NARROW), "x", lo=-127)


def test_a_code_that_the_target_adds_counts_only_where_inputs_reach_it() -> None:
    fitted = fit(canonical(narrow())[0], TRT)
    assert fitted.change is None
    assert fitted.widened is not None
    assert [t.name for t in fitted.widened.traces] == ["widen-range"]
    before, after = (
        {(p.lo, p.hi) for p in map(params_of, m.nodes(FAKE_QUANTIZE))}
        for m in (fitted.widened.before, fitted.widened.after)
    )
    assert (before, after) == ({(-127, 127)}, {(-128, 127)})
    inside = np.linspace(-12.7, 12.7, 8, dtype=np.float32)[None]
    done = convert(narrow(), "tensorrt", data={"x": inside})
    assert done.proven
    assert (done.change, done.cost) == (None, None)
    outside = np.array([[-13, -20, 1, 2, 3, 4, 5, 6]], np.float32)
    done = convert(narrow(), "tensorrt", data={"x": outside})
    assert done.proven
    assert done.change is not None
    assert done.cost is not None
    assert done.cost.outputs[0].max == 1
    assert done.cost.outputs[0].moved == 0.25
    assert any(n.startswith("widen-range changes what the model computes") for n in done.notes)


def test_the_added_code_excuses_nothing_else() -> None:
    """On every input beyond the end the added code is all the difference there may be."""
    outside = np.full((1, 8), -20, np.float32)
    done = convert(narrow(), "tensorrt", data={"x": outside}, verify=False)
    for node in done.model.nodes("QuantizeLinear", "DequantizeLinear"):
        node.inputs[1].values = np.asarray(node.inputs[1].values * np.float32(1.05))
    fitted = fit(canonical(narrow())[0], TRT)
    assert fitted.widened is not None
    assert not verify(fitted.widened.after, done.model, {"x": outside}).passed


def test_a_model_without_narrow_ranges_is_kept_once() -> None:
    fitted = fit(canonical(quantize(parse(NARROW), "x"))[0], TRT)
    assert (fitted.change, fitted.widened) == (None, None)
