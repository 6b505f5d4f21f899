"""Copies of models and conversions compute the same, and are independent."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest

import onnxq
from onnxq import graph
from onnxq.backend import Backend, backends, chosen_backend, find_backend
from onnxq.edit import constant
from onnxq.errors import LoadError, SaveError
from onnxq.graph import Model, from_proto, load, save
from onnxq.side_files.side_file import SideFile, formats
from onnxq.workflows import demo
from tests.checks.same_model import assert_same
from tests.models.build import bit_equal, run
from tests.models.zoo import ZOO, inputs

Copy = Callable[[Any], Any]
WAYS: dict[str, Copy] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
@pytest.mark.parametrize("name", sorted(ZOO))
def test_a_copy_is_the_same_file(name: str, way: Copy) -> None:
    model = from_proto(ZOO[name]())
    before = model.to_proto().SerializeToString()
    twin = way(model)
    assert isinstance(twin, Model)
    assert twin.to_proto().SerializeToString() == before
    for node in twin.nodes():
        node.name = ""
        node.attrs.clear()
    assert model.to_proto().SerializeToString() == before


@each_way
def test_a_copy_computes_the_same_and_keeps_what_no_file_has(way: Copy) -> None:
    model = demo.quantize(demo.build())
    model = onnxq.Pipeline.parse("collect-qparams").run(model).model
    model.upgrades.append("a note")
    model.export_notes.append("another")
    twin = way(model)
    assert twin.qparams.to_json() == model.qparams.to_json()
    assert (twin.upgrades, twin.export_notes) == (["a note"], ["another"])
    x = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    assert bit_equal(run(twin, x), run(model, x))


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_arrays_are_not_shared(way: str) -> None:
    model = demo.build()
    weight = next(t for t in model.nodes("Conv")[0].inputs if isinstance(t, gs.Constant))
    weight.values = weight.values.copy()
    twin = WAYS[way](model)
    before = weight.values.copy()
    other = twin.nodes("Conv")[0].inputs[1]
    assert other.name == weight.name
    weight.values[...] = 0
    assert np.array_equal(other.values, before)


def test_a_model_in_two_places_is_copied_once() -> None:
    model = demo.build()
    for way in (WAYS["deepcopy"], WAYS["pickle"]):
        first, second = way([model, model])
        assert first is second is not model


def external(folder: Path) -> tuple[Model, Path]:
    model = demo.build()
    constant(model, "large", np.arange(4096, dtype=np.float32))
    path, data = save(model, folder / "m.onnx", external_data=True)
    return load(path), data


def test_a_pickled_model_brings_its_data_along(tmp_path: Path) -> None:
    model, data = external(tmp_path)
    stored = pickle.dumps(model)
    x = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    wanted = run(model, x)
    data.unlink()
    assert bit_equal(run(pickle.loads(stored), x), wanted)


def test_data_that_changed_is_not_pickled(tmp_path: Path) -> None:
    model, data = external(tmp_path)
    data.write_bytes(bytes(data.stat().st_size + 8))
    with pytest.raises(LoadError, match=r"m\.onnx\.data"):
        pickle.dumps(model)


def test_a_model_too_large_for_pickle_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large:
        def SerializeToString(self) -> bytes:
            raise ValueError("exceeds 2 GiB")

    model = demo.build()
    monkeypatch.setattr(graph.Model, "to_proto", lambda self: Large())
    with pytest.raises(SaveError, match="2 GiB") as failed:
        pickle.dumps(model)
    assert "onnxq.save" in failed.value.fix


# -- what goes along in a Conversion ------------------------------------------------------------


@each_way
@pytest.mark.parametrize("backend", ["tensorrt", "ncnn", "vitis"])
def test_a_conversion(backend: str, way: Copy, tmp_path: Path) -> None:
    model = demo.quantize(demo.build())
    done = onnxq.convert(model, backend, allow_requantize=backend != "tensorrt", stem="m")
    twin = way(done)
    assert isinstance(twin, onnxq.Conversion)
    assert twin.backend == done.backend
    assert twin.proven == done.proven
    assert twin.findings == done.findings
    assert twin.to_json() == done.to_json()
    assert twin.source is not done.source or way is copy.copy
    first, second = tmp_path / "a", tmp_path / "b"
    for made, folder in ((done, first), (twin, second)):
        made.save(folder)
    for file in first.iterdir():
        other = second / file.name
        if file.suffix == ".onnx":  # the order of what is said about shapes may differ
            assert_same(load(file).to_proto(), load(other).to_proto())
        else:
            assert file.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", sorted(backends()))
def test_backends_and_formats_can_be_pickled(name: str) -> None:
    backend = find_backend(name)
    assert isinstance(backend, Backend)
    for variant in (None, *backend.variants):
        chosen = chosen_backend(name, variant)
        for way in WAYS.values():
            assert way(chosen) == chosen


def test_formats_can_be_pickled() -> None:
    for found in formats().values():
        assert isinstance(found, SideFile)
        assert WAYS["pickle"](found) == found


@each_way
def test_pipelines_tables_and_reports(way: Copy) -> None:
    pipeline = onnxq.Pipeline.parse("fold-batch-norm,to-qdq{opset=21}")
    assert str(way(pipeline)) == str(pipeline)
    proto = ZOO["qdq_residual"]()
    report = onnxq.verify(proto, proto, [inputs(proto)])
    assert way(report).to_json() == report.to_json()
