from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import OptionError
from onnxq.graph import from_proto
from onnxq.pipeline import Pipeline
from passes.collect_qparams import CollectQParams
from passes.remove_fake_quant import RemoveFakeQuant
from tests.models.build import apply, ops, parse, quantize, tensor
from tests.models.canonical import assert_same_outputs, expose, grid, put

TEXT = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Neg(a) }"


def test_graph_is_as_before_quantization() -> None:
    model = parse(TEXT)
    for name in ("x", "a", "y"):
        quantize(model, name)
    clean, trace = apply(model, RemoveFakeQuant())
    assert len(trace.rewrites) == 3
    want = parse(TEXT).to_proto()
    got = clean.to_proto()
    assert got.graph == want.graph
    assert not got.functions
    assert got.opset_import == want.opset_import
    assert got.ir_version == want.ir_version


def test_constants_of_quantizers_go_with_them() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    quantize(model, "w")
    clean, _ = apply(model, RemoveFakeQuant())
    assert [t.name for t in clean.to_proto().graph.initializer] == ["w"]


def test_second_quantized_output_becomes_an_identity() -> None:
    model = parse(TEXT)
    for number in (0, 2):
        expose(model, put(model, tensor(model, "a"), grid("a", number)))
    names = [t.name for t in model.graph.outputs]
    clean, _ = apply(model, RemoveFakeQuant())
    assert [t.name for t in clean.graph.outputs] == names
    assert ops(clean).count("Identity") == 1
    outputs = from_proto(clean.to_proto())
    assert_same_outputs(clean, outputs)


def test_chain_whose_links_all_leave_the_graph() -> None:
    model = parse(TEXT)
    inner = put(model, tensor(model, "a"), grid("a", 5))
    outer = put(model, inner, grid("a", 0))
    expose(model, outer)
    expose(model, inner)
    clean, _ = apply(model, RemoveFakeQuant())
    # The quantizer nearest to the tensor names it.
    assert clean.nodes("Relu")[0].outputs[0].name == inner.name
    assert [n.outputs[0].name for n in clean.nodes("Identity")] == [outer.name]


def test_type_told_by_the_scale_alone_is_kept() -> None:
    model = parse("g (float16[2] x) => (float16[2] y) { a = Relu(x) y = Neg(a) }", 21, 10)
    assert tensor(model, "a").dtype is None
    tensor(model, "a").dtype = np.dtype(np.float16)
    quantize(model, "a")
    tensor(model, "a").dtype = None
    clean, _ = apply(model, RemoveFakeQuant())
    assert tensor(clean, "a").dtype == np.float16


def test_must_come_after_collecting() -> None:
    with pytest.raises(OptionError, match="comes before 'collect-qparams'"):
        Pipeline(RemoveFakeQuant(), CollectQParams())
