"""What a proof accepts, and what it must not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxq
from onnxq import demo
from onnxq.graph import Model, from_proto
from onnxq.verify import verify
from tests.build import parse, quantize, weight
from tests.zoo import ZOO


def test_a_session_that_runtimes_refuse_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxq import runtime

    monkeypatch.setitem(
        runtime.session.__globals__, "deployed", lambda source, taps=(): runtime.reference(source)
    )
    done = onnxq.convert(demo.quantize(demo.build()), "onnxruntime")
    assert [p.refused for p in done.proofs] == ["", "onnxruntime refuses the deployed session"]
    assert not done.proven
    assert done.to_json()["proofs"][1]["passed"] is False


def test_quantizers_in_bodies_are_proven_in_the_reference_session_alone() -> None:
    done = onnxq.convert(from_proto(ZOO["qdq_in_if"]()), "onnxruntime")
    assert [p.what for p in done.proofs] == ["qdq.onnx (reference)"]
    assert done.proven
    assert any("body of another node" in note for note in done.notes)


def test_data_from_a_generator_serves_every_proof() -> None:
    random = np.random.default_rng(0)
    images = ({"image": random.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(3))
    done = onnxq.convert(demo.quantize(demo.build()), "tensorrt", data=images)
    assert [p.report.samples for p in done.proofs] == [3, 3, 3]
    assert done.proven


def test_nothing_compared_is_nothing_proven() -> None:
    model = quantize(parse("g (float[0,4] x) => (float[0,4] y) { y = Neg(x) }"), "x")
    done = onnxq.convert(model, "tensorrt")
    assert not done.proven
    assert "no finite value" in done.proofs[0].report.notes[0]


def negative_gain(code: int) -> Model:
    """Conv of symmetric int8 weights, one with this code, and a BatchNormalization of gain -1."""
    model = parse(
        f"""g (float[1,1,4,4] x) => (float[1,1,4,4] y)
        <float[1,1,1,1] w = {{{code / 10}}}, float[1] g = {{-1}}, float[1] z = {{0}},
         float[1] v = {{1}}> {{
            c = Conv<kernel_shape=[1,1]>(x, w)
            y = BatchNormalization(c, g, z, z, v)
        }}"""
    )
    return weight(quantize(model, "x"), "w")


@pytest.mark.parametrize(("code", "left"), [(-127, 0), (-128, 1)])
def test_a_symmetric_model_stays_symmetric_for_tensorrt(code: int, left: int) -> None:
    done = onnxq.convert(negative_gain(code), "tensorrt")
    assert done.proven
    assert len(done.model.nodes("BatchNormalization")) == left
    assert not onnxq.convert(negative_gain(code), "onnxruntime").model.nodes("BatchNormalization")


def test_initializers_listed_as_inputs_are_constants_when_deployed() -> None:
    proto = ZOO["qdq_residual"]()
    for tensor in proto.graph.initializer:
        info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        proto.graph.input.append(info)
    done = onnxq.convert(from_proto(proto), "onnxruntime")
    assert done.proven
    assert len(done.model.graph.inputs) == 1
    assert any("listed as graph inputs" in n for n in done.model.upgrades)


def test_layers_of_a_conversion_agree_one_by_one() -> None:
    """Folding renames with the values: what has the same name is the same tensor."""
    source = demo.quantize(demo.build())
    for backend in ("onnxruntime", "tensorrt"):
        done = onnxq.convert(source, backend)
        report = verify(source, done.model, per_layer=True)
        assert report.first_divergence is None
        assert len(report.layers) > 10
