"""The story of a tensor: rule, numbers, module, readers, fate, and how to exclude it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx.parser
import pytest

from onnxq.errors import OptionError
from onnxq.graph import Model, from_proto, load
from onnxq.reading import canonical
from onnxq.workflows.explain import explain
from tests.models.lint_cases import conv_net
from tests.models.zoo import ZOO


def model(**how: int) -> Model:
    return from_proto(conv_net(**how))


def test_a_quantized_activation() -> None:
    found = explain(model(), "active", "onnxruntime")
    (row,) = found.quantizers
    assert (found.tensor, row.lo, row.hi) == ("active", 0, 255)
    assert found.rule.startswith("onnxruntime quantizes it")
    assert "writes codes" in found.rule
    assert "(Relu)" in found.maker
    assert "stored in the model (QDQ)" in found.origin
    assert any(line.startswith("read-qdq: ") for line in found.origin)


@pytest.mark.parametrize("canonical_form", [False, True])
def test_what_becomes_of_it(canonical_form: bool) -> None:
    given = canonical(model())[0] if canonical_form else model()
    (use,) = explain(given, "x", "onnxruntime").uses
    assert "(Conv)" in use.node
    assert use.fate == "integer kernel QLinearConv"


def test_a_float_layer_says_why() -> None:
    (use,) = explain(model(relu_zero=128), "x", "onnxruntime").uses
    assert "runs in float: its Relu stays" in use.fate


def test_a_target_that_is_not_onnxruntime_has_no_fate() -> None:
    (use,) = explain(model(), "x", "tensorrt").uses
    assert use.fate == ""


def test_why_there_is_no_quantizer() -> None:
    found = explain(model(), "features", "onnxruntime")
    assert found.quantizers == ()
    assert "runs inside" in found.rule
    assert found.origin == ()


def test_values_that_are_only_moved() -> None:
    moved = from_proto(ZOO["pool_concat_flatten"]())
    name = moved.nodes("Flatten")[0].outputs[0].name
    assert "only moves values" in explain(moved, name, "onnxruntime").rule


def test_an_operator_that_only_joins_layers_on_codes() -> None:
    """onnxruntime has an integer Sigmoid, but before a float result it would gain nothing."""
    body = "agraph (float[1, 2] x) => (float[1, 2] y) { s = Sigmoid(x)  y = Tanh(s) }"
    text = f'<ir_version: 8, opset_import: ["" : 17]> {body}'
    rule = explain(from_proto(onnx.parser.parse_model(text)), "s", "onnxruntime").rule
    assert "runs on codes only where" in rule
    assert "integer kernel" not in rule


def test_a_bias_follows_input_and_weight() -> None:
    found = explain(from_proto(conv_net(bias=1.0)), "bias", "onnxruntime")
    assert "a constant but not a layer's weight" in found.rule


def test_a_weight() -> None:
    given = canonical(model())[0]
    weight = given.nodes("Conv")[0].inputs[1].inputs[0].inputs[0].name
    found = explain(given, weight, "onnxruntime")
    assert found.rule.startswith("onnxruntime quantizes weights of Conv")
    assert [str(row.role) for row in found.quantizers] == ["weight"]


def test_what_a_quantizer_makes_stands_for_its_tensor() -> None:
    given = model()
    codes = next(n for n in given.nodes("QuantizeLinear") if n.inputs[0].name == "active")
    for name in ("y", codes.outputs[0].name):
        found = explain(given, name)
        assert (found.tensor, len(found.quantizers)) == ("active", 1)
    scale = explain(given, codes.inputs[1].name, "onnxruntime")
    assert "belongs to a quantizer of the model" in scale.rule


def test_without_a_backend() -> None:
    assert "add --backend" in explain(model(), "active").rule
    assert "does not quantize it" in explain(model(), "features").rule


def test_unknown_tensors_have_near_matches() -> None:
    with pytest.raises(OptionError) as refused:
        explain(model(), "actve")
    assert "tensor 'actve' is not in the model" in refused.value.what
    assert "'active'" in refused.value.fix


def test_nothing_near_does_not_list_the_whole_network() -> None:
    with pytest.raises(OptionError) as refused:
        explain(from_proto(ZOO["qdq_residual"]()), "qqqqqqqqqqqq")
    assert "onnxq inspect" in refused.value.fix


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_tensor_of_every_model_can_be_explained(name: str) -> None:
    given = from_proto(ZOO[name]())
    names = {t.name for t in given.graph.inputs} | {t.name for t in given.graph.outputs}
    names |= {t.name for n in given.nodes()[:3] for t in (*n.inputs, *n.outputs) if t.name}
    nodes = [*given.nodes(), *canonical(given)[0].nodes()]
    known = {t.name for n in nodes for t in (*n.inputs, *n.outputs)} | names
    for tensor in sorted(names):
        explained = explain(given, tensor, "onnxruntime").to_json()
        assert json.loads(json.dumps(explained, allow_nan=False)) == explained
        assert explained["tensor"] in known
        assert explained["rule"], tensor


def test_the_selector_excludes_what_was_trained(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tb = pytest.importorskip("torch_bridge")

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
            self.relu = torch.nn.ReLU()

        def forward(self, x: object) -> object:
            return self.relu(self.conv(x)) + x

    net = torch.nn.Sequential(Block(), Block())
    x = torch.ones(1, 3, 8, 8)

    def exported(**how: object) -> Model:
        q = tb.prepare(net, backend="onnxruntime", example_inputs=(x,), **how)
        with tb.calibrating(q):
            q(x)
        tb.enable_quantization(q)
        return load(tb.export(q, (x,), tmp_path / "m.onnx"))

    trained = exported()
    found = explain(trained, "0/Add_output_0", "onnxruntime")
    assert (found.module, found.quantizers[0].role) == ("0", "activation")
    assert found.selectors == ("add", "1.conv")  # the second Add leaves the network in float
    without = exported(exclude=list(found.selectors))
    assert explain(without, "0/Add_output_0", "onnxruntime").quantizers == ()
    weight = explain(trained, "1.conv.weight", "onnxruntime")
    assert weight.selectors == ("1.conv",)
    without = exported(exclude=list(weight.selectors))
    assert explain(without, "1.conv.weight", "onnxruntime").quantizers == ()
