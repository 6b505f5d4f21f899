"""Reports of every kind of model, with and without what there is to compare."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.errors import LoadError, OptionError, SaveError
from onnxq.graph import Model, from_proto, save
from onnxq.proof.prove import Proof
from onnxq.proof.verify import verify
from onnxq.timing.rounds import Spread
from onnxq.timing.survey import FloatNode, Survey
from onnxq.workflows.bench import Bench, Latency
from onnxq.workflows.convert import convert
from onnxq.workflows.report import constant_bytes, report, short_path, shown_path
from tests.models.build import parse, parse_filled, weight
from tests.models.reported import float_network, images, quantized_network
from tests.models.zoo import ZOO


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("against", [False, True])
@pytest.mark.parametrize("kind", ["float", "canonical", "qdq"])
def test_every_combination_gives_a_page(kind: str, against: bool, data: bool) -> None:
    model = {
        "float": float_network,
        "canonical": quantized_network,
        "qdq": lambda: convert(quantized_network(), "onnxruntime", verify=False).model,
    }[kind]()
    made = report(model, float_network() if against else None, images(1) if data else None)
    found, page = made.contents, made.html
    assert (found.worst_output is not None) is against
    assert ("--against" in page) or against or kind == "float"
    assert any(each.role == "activation" for each in found.distributions) is data
    assert any(each.role == "weight" for each in found.distributions)
    assert found.coverage == (0 if kind == "float" else 1)
    assert ("float-model" in {advice.rule for advice in found.advice}) is (kind == "float")
    if kind == "float":
        assert "onnxq quantize" in page


DIALECTS = ("qop_conv_matmul", "qonnx_cnn", "openvino_cnn", "composed_cnn")


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect(name: str) -> None:
    model = from_proto(ZOO[name]())
    found = report(model, model, count=1).contents
    assert found.measured.refusal is None
    assert found.worst_output is not None
    assert any(each.grid is not None for each in found.distributions)


def test_weights_alone_are_quantized() -> None:
    body = "g (float[2,6] x) => (float[2,3] y) { a = MatMul(x, w)\n y = Relu(a) }"
    model = weight(parse_filled(body, w=(6, 3)), "w", scale=np.float32(0.05))
    data = [{"x": np.ones((2, 6), np.float32)}]
    found = report(model, model, data, backend="tensorrt").contents
    drawn = {each.tensor: each.grid is not None for each in found.distributions}
    assert drawn == {"x": False, "w": True}


def test_noise_without_a_signal() -> None:
    zero = parse("g (float[4] x) => (float[4] y) { a = Sub(x, x)\n y = Relu(a) }")
    other = parse("g (float[4] x) => (float[4] y) { a = Neg(x)\n y = Relu(a) }")
    made = report(other, zero, [{"x": np.array([-1, -2, 3, 4], np.float32)}])
    assert made.contents.layers[0].sqnr == -math.inf
    assert json.loads(json.dumps(made.to_json(), allow_nan=False))["sqnr"] is None
    assert "−∞ dB" in made.html


SOME = list(ZOO)[::9]


@pytest.mark.parametrize("name", SOME)
def test_models_of_all_kinds(name: str) -> None:
    model = from_proto(ZOO[name]())
    made = report(model, model, count=1, backend="onnxruntime")
    assert made.contents.measured.refusal is None
    assert made.html.endswith("</html>")


def test_files_and_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(float_network(), tmp_path / "float.onnx")
    save(quantized_network(), tmp_path / "q.onnx")
    np.savez(tmp_path / "data.npz", image=images(1)[0]["image"])
    made = onnxq.report("q.onnx", "float.onnx", "data.npz")
    names = made.contents.names
    assert (names.model, names.against, names.source) == ("q.onnx", "float.onnx", "float.onnx")
    assert "onnxq quantize float.onnx --backend onnxruntime --data data.npz" in names.quantize()
    assert made.save("new/report.html").read_text(encoding="utf-8") == made.html
    assert made.save_model_explorer("explorer")[0].name == "graph.json"
    with pytest.raises(SaveError):
        made.save(tmp_path)


def test_a_model_beside_its_side_file(tmp_path: Path) -> None:
    convert(quantized_network(), "tengine", stem="m", allow_requantize=True, verify=False).save(
        tmp_path
    )
    found = report(tmp_path / "m_for_tengine.onnx", backend="tengine").contents
    assert found.coverage
    assert any(layer.quantizer for layer in found.layers)


def test_proofs_of_others_are_shown() -> None:
    compared = verify(float_network(), quantized_network(), images(1))
    made = report(quantized_network(), proofs=[Proof("one beside the other", compared)])
    assert made.contents.proven is False
    assert made.contents.advice[0].rule == "not-proven"
    assert "not proven" in made.html


def test_a_model_that_cannot_be_converted_is_still_reported() -> None:
    found = report(dynamic(), count=1).contents
    assert found.refusal is not None
    assert "DynamicQuantizeLinear" in found.refusal[0]
    assert "cannot be checked" in report(dynamic()).html


def dynamic() -> Model:
    import onnx

    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[2,4] x) => (float[2,4] y) {
        q, s, z = DynamicQuantizeLinear(x)
        y = DequantizeLinear(q, s, z)
    }"""
    return from_proto(onnx.parser.parse_model(text))


def test_latencies(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def measured(models: dict[str, Model], data: object, **_: object) -> Bench:
        asked.extend((list(models), data))
        island = FloatNode("softmax", "Softmax", 0.25, 0.1, (), (), "it has no kernel")
        survey = Survey({}, {}, {}, 1, (island,), 1)
        row = Latency(
            *("model", Spread(2.0, 2.0, 2.0), Spread(0.5, 0.5, 0.5), 1, (), False, 1, 1),
            survey=survey,
        )
        return Bench((row, row), 1, 5, [])

    monkeypatch.setattr("onnxq.workflows.report.bench", measured)
    made = report(quantized_network(), float_network(), bench_seconds=1, count=1)
    assert asked == [["trusted", "model"], None]
    assert made.contents.timing is not None
    assert (made.contents.timing.milliseconds, made.contents.timing.ratio) == (2.0, 0.5)
    assert "it has no kernel" in made.html


def test_how_it_shows_itself() -> None:
    made = report(quantized_network(), float_network(), images(1))
    assert made.summary.startswith("100 % of the operators on integers, ")
    assert "dB at 'logits', 0 errors, " in made.summary
    assert repr(made) == f"<ModelReport on model.onnx: {made.summary}>"
    frame = made._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert "<script" not in frame


def test_wrong_arguments() -> None:
    with pytest.raises(OptionError):
        report(quantized_network(), backend="nothing")
    with pytest.raises(LoadError):
        report("nowhere.onnx")


def test_sizes_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "a" / "b.onnx") == "a/b.onnx"
    assert short_path(Path("/elsewhere/b.onnx")) == "/elsewhere/b.onnx"
    assert shown_path(float_network()) is None
    parameters = [t for n in float_network().nodes() for t in n.inputs if t.name.endswith("weight")]
    assert constant_bytes(float_network()) > sum(t.values.nbytes for t in parameters[:3])
