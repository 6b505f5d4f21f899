"""convert: from any QDQ model to files, proven; refusals name every tensor."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.backend import Backend, TableFile, backends, find_backend
from onnxq.errors import BackendError, OptionError, PassError, SaveError
from onnxq.graph import Model, from_proto, load
from onnxq.running import sessions
from tests.models.build import log_quantize, parse, quantize, weight
from tests.models.zoo import QDQ, ZOO
from tests.models.zoo_build import Build


def test_the_callers_model_is_untouched() -> None:
    model = from_proto(ZOO["qdq_residual"]())
    before = model.to_proto().SerializeToString(deterministic=True)
    onnxq.convert(model, "onnxruntime")
    assert model.to_proto().SerializeToString(deterministic=True) == before


def test_save_writes_every_file_and_to_json_is_json(tmp_path: object) -> None:
    done = onnxq.convert(from_proto(ZOO["qdq_int8_per_tensor"]()), "tensorrt", stem="net")
    files = done.save(tmp_path)  # type: ignore[arg-type]
    assert [f.name for f in files] == [
        "net_qdq.onnx",
        "net_deploy_model.onnx",
        "net_clip_ranges.json",
        "net_calibration.cache",
    ]
    document = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert document["proven"] is True
    assert document["files"] == [str(f) for f in files]
    for file in files[:2]:
        onnx.checker.check_model(str(file), full_check=True)


def test_not_verified_is_not_proven() -> None:
    done = onnxq.convert(from_proto(ZOO["qdq_residual"]()), "onnxruntime", verify=False)
    assert done.proofs == ()
    assert not done.proven
    assert done.report is None


def test_a_float_model_is_refused() -> None:
    with pytest.raises(BackendError, match="no quantizers"):
        onnxq.convert(from_proto(ZOO["conv_relu_chain"]()), "onnxruntime")


def test_every_offending_tensor_is_named() -> None:
    model = parse("g (float[4] x) => (float[4] z) { y = Neg(x) z = Neg(y) }")
    quantize(model, "x", qtype="uint8", zero_point=3)
    quantize(model, "y", qtype="int16")
    with pytest.raises(BackendError, match="2 quantizers not supported by tensorrt") as caught:
        onnxq.convert(model, "tensorrt")
    assert "'x' (activation): uint8 zero point 3 (must be 128)" in caught.value.what
    assert "'y' (activation): type int16" in caught.value.what
    assert "activations (int8/float8e4m3fn, symmetric, per tensor)" in caught.value.fix
    one = quantize(parse("g (float[4] x) => (float[4] y) { y = Neg(x) }"), "x", qtype="int16")
    with pytest.raises(BackendError, match="1 quantizer not supported by tensorrt:"):
        onnxq.convert(one, "tensorrt")


def test_unknown_backend_lists_near_matches() -> None:
    with pytest.raises(OptionError, match="unknown backend 'tensorflow'") as caught:
        onnxq.convert(from_proto(ZOO["qdq_residual"]()), "tensorflow")
    assert "tensorrt" in caught.value.fix


@pytest.mark.parametrize("also_linear", [False, True])
def test_logarithmic_grids_are_refused_by_name(also_linear: bool) -> None:
    model = parse("g (float[4] x) => (float[4] y) { r = Relu(x)\n y = Neg(r) }")
    if also_linear:
        quantize(model, "r")
    model.refresh()
    log_quantize(model, "x", 2.5)
    with pytest.raises(BackendError, match=r"'x' \(activation\): a logarithmic grid") as caught:
        onnxq.convert(model, "onnxruntime")
    assert "--allow-requantize" not in caught.value.fix


def test_a_backend_without_a_writer_says_so() -> None:
    chip = Backend("chip", "a chip", find_backend("onnxruntime").scheme)
    with pytest.raises(BackendError, match="cannot write files for chip yet") as caught:
        onnxq.convert(from_proto(ZOO["qdq_residual"]()), chip)
    assert "onnxq backends" in caught.value.fix


def test_a_wrong_file_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof compares what was written: a writer that is off by a step is found."""
    import passes.to_qdq as writer

    right = writer._constants

    def wrong(*arguments: object) -> object:
        scale, zero_point = right(*arguments)  # type: ignore[arg-type]
        scale.values = np.asarray(scale.values * np.float32(1.1))
        return scale, zero_point

    monkeypatch.setattr(writer, "_constants", wrong)
    done = onnxq.convert(from_proto(ZOO["qdq_residual"]()), "onnxruntime")
    assert not done.proven


def test_float8_is_refused_for_onnxruntime_by_name() -> None:
    with pytest.raises(BackendError, match=r"'conv_37' \(activation\): type float8e4m3fn"):
        onnxq.convert(from_proto(ZOO["qdq_float8"]()), "onnxruntime")


@pytest.mark.parametrize("name", sorted(QDQ - {"qdq_float8"}))
def test_every_quantized_zoo_model_converts_for_onnxruntime(name: str, tmp_path: object) -> None:
    done = onnxq.convert(from_proto(ZOO[name]()), "onnxruntime")
    done.save(tmp_path)  # type: ignore[arg-type]
    report = done.report
    assert report is not None
    assert report.passed, [(o.name, o.max, o.moved, o.unit) for o in report.outputs]
    # What was written is a model that loads, and reads back as quantized.
    again = load(done.files[0])
    assert again.nodes("DequantizeLinear")
    sessions.reference(done.files[0])


RUN_TIME_SCALE = """g (float[2,4] x, float s) => (float[2,4] y) <uint8 z = {7}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    y = Neg(d)
}"""


def test_quantization_that_is_not_read_is_told() -> None:
    model = quantize(parse(RUN_TIME_SCALE), "y")
    done = onnxq.convert(model, "onnxruntime")
    left = [note for note in done.notes if note.startswith("left as it is: ")]
    assert any("run time" in note for note in left)
    assert done.to_json()["notes"] == done.notes


@pytest.mark.parametrize("backend", ["qnn", "stpu", "ppl"])
def test_a_float_model_that_still_quantizes_is_refused(backend: str) -> None:
    model = quantize(parse(RUN_TIME_SCALE), "y", lo=-127)
    with pytest.raises(BackendError, match=r"QuantizeLinear producing 'q'[^$]*producing 'd'"):
        onnxq.convert(model, backend, verify=False, allow_requantize=True)


def test_old_files_beside_a_model_that_still_quantizes_are_left_out() -> None:
    done = onnxq.convert(quantize(parse(RUN_TIME_SCALE), "y"), "tensorrt")
    assert [a.suffix for a in done.artifacts] == ["_qdq.onnx"]
    assert any("not written" in note for note in done.notes)


# -- weights alone -----------------------------------------------------------------------------


def weights_only() -> Model:
    b = Build()
    made = b.op("Relu", b.conv(b.input("x", [1, 3, 8, 8]), 3, 4), out="y")
    model = from_proto(b.model(made))
    (conv,) = model.nodes("Conv")
    return weight(model, conv.inputs[1].name, lo=-127, scale=2.0**-7)


WAYS = [
    (name, variant)
    for name, backend in backends().items()
    if isinstance(backend, Backend) and backend.writes
    for variant in (None, *backend.variants)
]


@pytest.mark.parametrize(("name", "variant"), WAYS)
def test_no_side_file_is_empty(name: str, variant: str | None) -> None:
    backend = find_backend(name) if variant is None else find_backend(name).variant(variant)
    formats = {o.suffix: o.format for o in backend.outputs if isinstance(o, TableFile)}
    if (name, variant) in {("tengine", None), ("ncnn", "table"), ("nnie", None)}:
        with pytest.raises((BackendError, SaveError)):
            onnxq.convert(weights_only(), name, variant=variant, verify=False)
        return
    done = onnxq.convert(weights_only(), name, variant=variant, verify=False)
    for artifact in done.artifacts:
        if artifact.suffix in formats:
            held = formats[artifact.suffix].read(artifact.content, done.model)
            assert not held.is_empty
    missing = formats.keys() - {artifact.suffix for artifact in done.artifacts}
    assert all(any(s.lstrip("_") in note for note in done.notes) for s in missing)
    assert bool(missing) == (name in {"tensorrt", "tensorrt-nlp", "ppl-cuda"})


def test_a_target_of_ranges_refuses_weights_alone() -> None:
    with pytest.raises(SaveError, match="no activation of the model has a quantizer") as caught:
        onnxq.convert(weights_only(), "tengine")
    assert "calibrate the model" in caught.value.fix
    done = onnxq.convert(weights_only(), "tensorrt")
    assert [a.suffix for a in done.artifacts] == ["_qdq.onnx"]
    assert any("clip_ranges.json, calibration.cache not written" in note for note in done.notes)


# The parser reads float16 as bits: the step is 0.05, the weights are 1, -2, 0.5, -0.25 and 3.
HALF = """g (float[1,4] x) => (float[1,3] y)
    <float16[4,3] w = {15360, 49152, 14336, 46080, 16896, 15360, 49152, 14336, 46080, 16896, 15360,
    49152}, float16 s = {10854}, int8 z = {0}>
    {
        h = Cast<to=10>(x)
        q = QuantizeLinear(h, s, z)
        d = DequantizeLinear(q, s, z)
        wq = QuantizeLinear(w, s, z)
        wd = DequantizeLinear(wq, s, z)
        m = MatMul(d, wd)
        y = Cast<to=1>(m)
    }"""


def test_float16_is_computed_in_float32_for_targets_without_it() -> None:
    model = parse(HALF, 21)
    with pytest.raises(PassError, match="float16, but Quant is float32"):
        onnxq.convert(model, "qonnx")
    done = onnxq.convert(model, "qonnx", allow_requantize=True)
    assert done.proven
    assert not done.model.nodes("Cast")
    assert done.cost is not None
    assert done.cost.outputs[0].sqnr > 50
    assert any("float16 is computed in float32" in note for note in done.notes)
