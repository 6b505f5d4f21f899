"""The logarithmic op in stock onnxruntime against its formula."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.canonical.fake_quantize_log import (
    FAKE_QUANTIZE_LOG,
    data_max_of,
    function,
    logarithmic,
    make,
)
from onnxq.edit import remove
from onnxq.errors import PassError, QParamsError
from onnxq.graph import Model, from_proto
from onnxq.running import sessions
from tests.models.build import parse, tensor


def quantized(data_max: float, opset: int = 17, kind: str = "float") -> Model:
    """x → Identity → FakeQuantizeLog → y"""
    model = parse(f"g ({kind}[N] x) => ({kind}[N] y) {{ a = Identity(x)\n y = Relu(a) }}", opset)
    relu = next(n for n in model.nodes("Relu"))
    out, source = relu.outputs[0], tensor(model, "a")
    model.refresh()
    remove(relu, model)
    make(model, source, out, data_max, model.graph)
    model.refresh()
    return model


def by_hand(value: float, data_max: float) -> float:
    """One value, as the formula reads."""
    base = np.rint(16 * np.log2(data_max)) - 127
    if value > 2 ** ((base - 16) / 16):
        return 2 ** ((np.clip(np.rint(16 * np.log2(value)) - base, 0, 127) + base) / 16)
    if value < -(2 ** ((base - 15) / 16)):
        return -(2 ** ((np.clip(np.rint(16 * np.log2(-value)) - base, 1, 127) + base) / 16))
    return 0.0


def values(data_max: float, seed: int) -> np.ndarray:
    """Both signs, far below and above the grid, on it, and half way in between."""
    rng = np.random.default_rng(seed)
    places = np.arange(-180, 40) / 16
    top = 2 ** (np.rint(16 * np.log2(data_max)) / 16)
    ends = np.array([0.0, -0.0, 1e-38, -1e-38, 3e38, -3e38])
    found = [top * 2**places, top * 2 ** (places + 1 / 32), data_max * rng.standard_normal(200)]
    sides = np.concatenate([*found, *(-f for f in found), ends])
    return sides.astype(np.float32)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.floats(2.0**-20, 2.0**20, width=32), st.integers(0, 2**16))
def test_onnxruntime_equals_the_formula_bit_for_bit(data_max: float, seed: int) -> None:
    x = values(data_max, seed)
    proto = quantized(data_max).to_proto()
    onnx.checker.check_model(proto, full_check=True)
    got = sessions.reference(proto).run({"x": x})["y"]
    assert got.tobytes() == logarithmic(x, data_max).tobytes()
    want = np.array([by_hand(float(v), data_max) for v in x]).astype(np.float32)
    assert np.array_equal(got, want)
    assert np.unique(np.abs(got)).size <= 129


@pytest.mark.parametrize("opset", [9, 13, 17, 21, 24])
def test_it_runs_in_every_opset_and_comes_back(opset: int) -> None:
    model = quantized(2.0, opset)
    proto = model.to_proto()
    assert [(f.domain, f.name) for f in proto.functions] == [("onnxq", "FakeQuantizeLog")]
    again = from_proto(proto)
    assert not again.functions
    (node,) = again.nodes(FAKE_QUANTIZE_LOG)
    assert data_max_of(node) == 2.0
    x = values(2.0, 0)
    assert sessions.reference(again).run({"x": x})["y"].tobytes() == logarithmic(x, 2.0).tobytes()


def test_float16_data_keep_their_type() -> None:
    x = np.array([0.5, -1.3, 0.0, 7.0], np.float16)
    got = sessions.reference(quantized(2.0, kind="float16")).run({"x": x})["y"]
    assert got.dtype == np.float16
    assert np.array_equal(got, logarithmic(x, 2.0))


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_magnitude_is_an_error_that_names_the_tensor(bad: float) -> None:
    with pytest.raises(QParamsError, match=r"'a'.*magnitude"):
        quantized(bad)


def test_a_magnitude_known_at_run_time_only_is_an_error() -> None:
    model = quantized(2.0)
    (node,) = model.nodes(FAKE_QUANTIZE_LOG)
    node.inputs[1] = model.graph.inputs[0]
    with pytest.raises(PassError, match="one constant number"):
        data_max_of(node)


def test_function_states_its_contract() -> None:
    made = function(17)
    assert (list(made.input), list(made.output)) == (["x", "data_max"], ["y"])
    assert made.doc_string
