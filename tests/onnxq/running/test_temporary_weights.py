"""Models larger than a protobuf message reach onnxruntime through a temporary file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from onnxq.graph import from_proto
from onnxq.running import sessions, temporary_weights

W = np.random.default_rng(0).standard_normal((512, 4)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)


def large() -> onnx.ModelProto:
    text = """
    <ir_version: 8, opset_import: ["": 17], producer_name: "tests", metadata_props: ["k": "v"]>
    g (float[N, 512] x) => (float[N, 4] y) <float[4] b = {1, 2, 3, 4}>
    { m = MatMul(x, w)  y = Add(m, b) }
    """
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(W, "w"))
    return model


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_light_copy_keeps_everything_but_the_bytes(temporary: Path) -> None:
    model = large()
    before = model.SerializeToString()
    store = temporary_weights.Spill()
    light = store.lighten(model)
    assert model.SerializeToString() == before
    assert len(light.SerializeToString()) < 1000
    assert store.folder is not None
    onnx.load_external_data_for_model(light, str(store.folder))
    assert numpy_helper.to_array(light.graph.initializer[1]).tobytes() == W.tobytes()
    for proto in (light, model):
        del proto.graph.initializer[:]
    assert light == model


def test_a_message_that_protobuf_refuses_is_spilled(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TooLarge:
        """Stands for a ModelProto of 2 GiB: everything but serialising works."""

        def __init__(self, proto: onnx.ModelProto) -> None:
            self._proto = proto

        def SerializeToString(self) -> bytes:
            raise ValueError("Message larger than 2 GiB")

        def __getattr__(self, name: str) -> object:
            return getattr(self._proto, name)

    opened = sessions.OpenModel(TooLarge(large()), "large", spill=temporary_weights.Spill())  # type: ignore[arg-type]
    session = sessions.reference(opened, taps=["m"])
    values = session.run({"x": X})
    np.testing.assert_allclose(values["m"], X @ W, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(values["y"], values["m"] + np.arange(1, 5, dtype=np.float32))
    assert len(list(temporary.iterdir())) == 1
    del session, opened
    assert list(temporary.iterdir()) == []


def test_large_constants_of_a_model_are_streamed(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = sessions.reference(large()).run({"x": X})["y"]
    model = from_proto(large())
    assert sessions.open_model(model).folder is None  # 8 kB stay inline
    monkeypatch.setattr(temporary_weights, "_LARGE", 1024)
    opened = sessions.open_model(model)
    assert opened.folder is not None
    assert Path(opened.folder, "weights.bin").stat().st_size == W.nbytes
    for kind in ("reference", "deployed", "shipped"):
        value = sessions.session(opened, kind).run({"x": X})["y"]
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


def test_a_large_constant_node_is_read_from_the_file_too(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = large()
    weight = proto.graph.initializer.pop()
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    monkeypatch.setattr(temporary_weights, "_LARGE", 1024)
    opened = sessions.open_model(from_proto(proto))
    assert opened.folder is not None
    value = sessions.reference(opened).run({"x": X})["y"]
    np.testing.assert_array_equal(value, sessions.reference(large()).run({"x": X})["y"])
