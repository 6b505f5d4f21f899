"""Activations that only some readers see quantized, for targets with one range per tensor."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from onnxq.backend import Backend, TableFile, backends, find_backend
from onnxq.canonical import fake_quantize
from onnxq.canonical.quantizers import QUANTIZERS, make, row_of
from onnxq.edit import insert, set_input, users, variable
from onnxq.errors import SaveError
from onnxq.graph import Model
from onnxq.lint.one_range import ONE_RANGE
from onnxq.lint.rule import Finding, Subject
from onnxq.quant.qparams import QParams, Reader
from onnxq.quant.qtypes import qtype
from onnxq.workflows import demo
from onnxq.workflows.convert import convert
from onnxq.workflows.fit_to_backend import fit
from onnxq.workflows.lint_model import lint
from tests.models.build import log_quantize, parse, quantize
from tests.models.networks import quantized
from tests.suites.backend_matrix import targets

LINEAR = sorted(
    name
    for name, backend in backends().items()
    if isinstance(backend, Backend) and backend.writes and not backend.scheme.activation.logarithmic
)
SCALE = np.float32(0.0625)
BODY = "g (float[1,8] x) => (float[1,8] y) { r = Relu(x) a = Sigmoid(r) b = Tanh(r) y = Add(a, b) }"


def partly() -> Model:
    """Relu's result is read rounded by Sigmoid and as it is by Tanh."""
    model = quantize(parse(BODY), "r", qtype="int8", scale=SCALE)
    tanh = model.nodes("Tanh")[0]
    set_input(tanh, 0, model.nodes("Relu")[0].outputs[0])
    return model


def check(model: Model, backend: str) -> list[Finding]:
    return [f for f in lint(model, backend).findings if f.rule == ONE_RANGE.name]


def test_the_reader_that_sees_it_as_it_is_is_named() -> None:
    (finding,) = check(partly(), "snpe")
    assert (finding.severity, finding.where) == ("error", "r")
    assert "(Tanh producing 'b') reads it unquantized" in finding.message
    assert "snpe has one range per tensor" in finding.message


def test_what_leaves_the_network_is_a_reader() -> None:
    model = parse("g (float[1,8] x) => (float[1,8] r, float[1,8] y) { r = Relu(x) y = Tanh(r) }")
    quantize(model, "r", qtype="int8", scale=SCALE)
    made = model.nodes("Relu")[0].outputs[0]
    quantizer = model.nodes("onnxq::FakeQuantize")[0]
    model.graph.outputs[0] = made
    assert quantizer.outputs[0].outputs
    (finding,) = check(model, "snpe")
    assert "the network output reads it unquantized" in finding.message


@pytest.mark.parametrize("name", ["ppl-cuda", "rknn", "tengine"])
def test_targets_that_round_for_all_do_not_mind(name: str) -> None:
    assert check(partly(), name) == []


def test_a_grid_for_each_reader() -> None:
    model = partly()
    params = QParams("r", qtype("int8"), SCALE * 2, 0)
    insert(
        model,
        model.nodes("Relu")[0].outputs[0],
        lambda x, y, graph: fake_quantize.make(model, x, y, params, graph),
        [Reader("b", 0)],
    )
    (finding,) = check(model, "rknn")
    assert "it has 2 quantizers: rknn has one range" in finding.message
    assert check(quantize(parse(BODY), "r", qtype="int8", scale=SCALE), "rknn") == []


def test_ranges_of_weights_are_another_matter() -> None:
    model = demo.quantize(demo.build())
    for name in ("rknn", "mnn", "vitis", "nnie"):
        assert check(model, name) == []


def test_targets_that_tell_readers_apart_do_not_mind() -> None:
    for name in ("onnxruntime", "openvino", "tensorrt", "tvm", "iree", "qonnx"):
        assert check(partly(), name) == []
    model = parse("g (float[1,8] x) => (float[1,8] y) { a = Add(x, x) b = Tanh(x) y = Add(a, b) }")
    log_quantize(model, "x", 4.0, [("a", 0), ("a", 1)])
    assert check(model, "nnie") == []


@pytest.mark.parametrize("name", LINEAR)
def test_lint_and_convert_agree(name: str) -> None:
    """What is found in the legal form is what convert then refuses, and the other way round."""
    backend = find_backend(name)
    model = partly()
    legal = fit(model, backend, allow_requantize=True).model
    found = list(ONE_RANGE.check(Subject(backend, model, legal, model)))
    refused = (
        pytest.raises(SaveError, match="only some of its consumers")
        if found
        else contextlib.nullcontext()
    )
    with refused:
        convert(model, backend, allow_requantize=True, verify=False)
    assert [f.where for f in found] in ([], ["r"])


def dedicated(model: Model) -> Model:
    """The same with a quantizer of its own for every reader of what one quantizer makes."""
    for node in model.nodes(*QUANTIZERS):
        made = node.outputs[0]
        for reader, index in users(made)[1:]:
            own = variable(model, made.name, made)
            make(model, node.inputs[0], own, row_of(node), node.owner)
            set_input(reader, index, own)
    return model


def with_tables() -> list[tuple[str, str]]:
    """Backends and variants that write side files, also those that only older versions read."""
    found = []
    for name, variant in targets():
        backend = find_backend(name)
        outputs = (backend.variant(variant) if variant else backend).outputs
        if any(isinstance(output, TableFile) for output in outputs):
            found.append((name, variant))
    return found


@pytest.mark.parametrize(("name", "variant"), with_tables())
def test_equal_quantizers_of_a_tensor_are_one_range(name: str, variant: str) -> None:
    backend = find_backend(name)
    model = quantized("transformer", backend)
    split = dedicated(model.clone())
    assert len(split.nodes(*QUANTIZERS)) > len(model.nodes(*QUANTIZERS))
    assert check(split, name) == []
    wanted, found = (
        convert(m, backend, variant=variant or None, verify=False) for m in (model, split)
    )
    files = [a for a in wanted.artifacts if not isinstance(a.content, Model)]
    assert files
    assert [a for a in found.artifacts if not isinstance(a.content, Model)] == files


def test_backends_with_side_files_are_among_them() -> None:
    tables = [
        name
        for name in LINEAR
        if any(isinstance(o, TableFile) and not o.legacy for o in find_backend(name).outputs)
    ]
    assert len(tables) >= 8
