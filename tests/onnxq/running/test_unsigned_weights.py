"""int8 weights become uint8 and mean the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from onnxq.running import sessions
from onnxq.running.temporary_weights import Spill
from onnxq.running.unsigned_weights import with_unsigned_weights

CODES = np.arange(-128, 128).astype(np.int8).reshape(2, 128)


def stored(path: Path, body: str, zeros: list[int]) -> onnx.ModelProto:
    """A model with the codes `w` and a float `f` in a file beside it."""
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["": 17]>
    g (float[128] x) => (float[2, 128] y) <float[2] s = {{0.5, 2.0}}> {{ {body} }}
    """)
    values = np.linspace(-1, 1, 128, dtype=np.float32)
    for name, value in (("w", CODES), ("f", values), ("z", np.array(zeros, np.int8))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    onnx.save(model, path, save_as_external_data=True, size_threshold=100)
    return onnx.load(path, load_external_data=False)


@pytest.mark.parametrize("zeros", ["", ", z"])
def test_the_values_are_the_same(tmp_path: Path, zeros: str) -> None:
    body = f"c = DequantizeLinear<axis=0>(w, s{zeros}) t = Add(c, x) y = Mul(t, f)"
    path = tmp_path / "model.onnx"
    before, spill = stored(path, body, [-7, 127]), Spill()
    made = with_unsigned_weights(before, tmp_path, spill)
    assert spill.folder is not None
    types = {t.name: t.data_type for t in made.graph.initializer}
    assert types["w"] == TensorProto.UINT8
    assert types["z"] == TensorProto.INT8  # another node may read it
    weight = next(t for t in made.graph.initializer if t.name == "w")
    assert weight.data_location == TensorProto.EXTERNAL
    assert before.graph.node[0].input[2:] == (["z"] if zeros else [])  # untouched
    other = spill.folder / "model.onnx"
    other.write_bytes(made.SerializeToString())
    feed = {"x": np.random.default_rng(0).standard_normal(128).astype(np.float32)}
    wanted, found = (sessions.reference(each).run(feed)["y"] for each in (path, other))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "body",
    [
        "c = DequantizeLinear<axis=0>(w, s) d = DequantizeLinear<axis=0>(w, s) y = Add(c, d)",
        "q = Identity(z) c = DequantizeLinear<axis=0>(w, s, q) y = Add(c, x)",
        "i = Identity(w) c = DequantizeLinear<axis=0>(i, s) y = Add(c, x)",
    ],
)
def test_what_is_read_otherwise_stays(tmp_path: Path, body: str) -> None:
    before = stored(tmp_path / "model.onnx", body, [0, 0])
    spill = Spill()
    assert with_unsigned_weights(before, tmp_path, spill) is before
    assert spill.folder is None
