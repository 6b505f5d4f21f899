"""External data stays where it is until it is read, and what is read is what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import InvalidModelError, LoadError, SaveError
from onnxq.graph import from_proto, load, save
from onnxq.graph.constants import array
from onnxq.storage import model_files, tensors
from onnxq.storage.tensors import SparseStoredValues, StoredValues
from tests.checks.same_model import assert_same
from tests.models.stored_models import (
    BIG,
    SMALL,
    change,
    external,
    model_proto,
    stored_model,
    value,
    weight,
    write,
)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return stored_model(tmp_path)


# -- external data: reading -------------------------------------------------------------------


def test_external_data_is_not_touched_by_load_and_save(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped(*args: object) -> None:
        raise AssertionError("external data was mapped")

    monkeypatch.setattr(tensors.ExternalData, "map", mapped)
    model = load(stored)
    model.check()
    twin = model.clone()
    change(twin, "a", BIG * 2)
    twin.sweep()
    save(twin, tmp_path / "n.onnx")
    monkeypatch.undo()
    assert np.array_equal(value(load(tmp_path / "n.onnx"), "b"), BIG + 1)


def test_external_data_is_memory_mapped_and_read_only(stored: Path) -> None:
    found = value(load(stored), "a")
    base: Any = found
    while not isinstance(base, np.memmap):
        base = base.base
    assert np.array_equal(found, BIG)
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_reading_external_data_caches_nothing(stored: Path) -> None:
    model = load(stored)
    value(model, "a")
    assert isinstance(weight(model, "a")._values, tensors.StoredValues)


def test_paths_are_relative_to_the_model_not_to_the_working_folder(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert np.array_equal(value(load("../m.onnx"), "b"), BIG + 1)
    relative = load("../m.onnx")
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(value(relative, "b"), BIG + 1)


@pytest.mark.parametrize(
    "kind", ["INT4", "UINT2", "FLOAT4E2M1", "BFLOAT16", "FLOAT8E4M3FN", "BOOL"]
)
@pytest.mark.parametrize("offset", [0, 3])
def test_external_data_of_every_width_at_any_offset(tmp_path: Path, kind: str, offset: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind))
    numbers = np.array([0, 1, 1, 0, 1], np.float32).astype(dtype)
    tensor = numpy_helper.from_array(numbers, "w")
    (tmp_path / "d").write_bytes(bytes(offset) + tensor.raw_data + b"more")
    entries = {"location": "d", "offset": offset, "length": len(tensor.raw_data)}
    for given in (entries, {k: v for k, v in entries.items() if k != "length"}):
        path = write(tmp_path / "m.onnx", model_proto(external(tensor, **given)))
        model = load(path)
        found = value(model, "w")
        assert found.dtype == dtype
        assert np.array_equal(found.astype(np.float32), numbers.astype(np.float32))
        assert_same(model_proto(tensor), model.to_proto())


def test_external_data_in_constant_nodes_and_bodies(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(BIG, "t")
    (tmp_path / "d").write_bytes(tensor.raw_data)
    held = helper.make_node("Constant", [], ["z"], value=external(tensor, location="d"))
    info = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1000])
    body = helper.make_graph([held], "b", [], [info])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    graph = helper.make_graph(
        [branch],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1000])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = load(write(tmp_path / "m.onnx", proto))
    found = array(model.nodes("Constant")[0].outputs[0])
    assert found is not None
    assert np.array_equal(found, BIG)
    paths = save(model, tmp_path / "out" / "n.onnx")
    assert [p.name for p in paths] == ["n.onnx", "n.onnx.data"]  # it came with external data
    session = ort.InferenceSession(paths[0])
    assert np.array_equal(session.run(None, {"c": np.array(True)})[0], BIG)


def test_external_sparse_initializer_is_taken_in(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.float32([5]), "w")
    (tmp_path / "d").write_bytes(values.raw_data)
    indices = numpy_helper.from_array(np.int64([1]), "")
    proto = model_proto(numpy_helper.from_array(SMALL, "w"))
    del proto.graph.initializer[:]
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(external(values, location="d"), indices, [2])
    )
    model = load(write(tmp_path / "m.onnx", proto))
    assert value(model, "w").tolist() == [0, 5]
    (tensor,) = model.to_proto().graph.sparse_initializer
    assert not tensor.values.external_data
    assert tensor.values.raw_data == values.raw_data


@pytest.mark.parametrize("location", ["../d", "/etc/passwd", "", ".", "x/../../d", ".."])
def test_location_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    (tmp_path / "d").write_bytes(BIG.tobytes())
    tensor = external(numpy_helper.from_array(BIG, "w"), location=location)
    path = write(folder / "m.onnx", model_proto(tensor))
    with pytest.raises(LoadError, match=r"'w'.* is not a file next to the model"):
        load(path)


def test_location_in_a_folder_below_and_linked_files_are_read(tmp_path: Path) -> None:
    """Model hubs keep the bytes in a store of their own and link to them."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "blob").write_bytes(BIG.tobytes())
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "w").symlink_to(tmp_path / "store" / "blob")
    tensor = external(numpy_helper.from_array(BIG, "w"), location="data/w")
    path = write(folder / "m.onnx", model_proto(tensor))
    assert np.array_equal(value(load(path), "w"), BIG)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "missing"}, "'w': external data file .*missing': no such file"),
        ({"location": "d", "offset": 8}, "'w': .* ends at 4000, but bytes up to 4008"),
        ({"location": "d", "length": 100}, "'w': .* do not match a tensor of 4000 bytes"),
        ({"location": "d", "offset": -4}, "'w': .* do not match"),
        ({"location": "d", "offset": "x"}, "'w': .* do not match"),
    ],
    ids=["missing", "truncated", "wrong length", "negative offset", "no number"],
)
def test_bad_external_data_is_refused_at_load(
    tmp_path: Path, entries: dict[str, object], message: str
) -> None:
    (tmp_path / "d").write_bytes(BIG.tobytes())
    tensor = external(numpy_helper.from_array(BIG, "w"), **entries)
    path = write(tmp_path / "m.onnx", model_proto(tensor))
    with pytest.raises(LoadError, match=message) as caught:
        load(path)
    assert caught.value.what.startswith(str(path))


def test_data_file_that_changed_after_load_is_not_believed(stored: Path) -> None:
    model = load(stored)
    data = stored.with_name("m.onnx.data")
    data.write_bytes(data.read_bytes()[::-1] + b"x")
    with pytest.raises(LoadError, match="was changed after the model was loaded"):
        value(model, "a")
    data.unlink()
    with pytest.raises(LoadError, match="can no longer be read"):
        value(model, "a")


# -- external data: writing -------------------------------------------------------------------


def test_small_constants_stay_in_the_model(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(BIG, "big"), numpy_helper.from_array(SMALL, "small")]
    save(from_proto(model_proto(*weights)), tmp_path / "m.onnx", external_data=True)
    bare = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = {t.name: t.data_location for t in bare.graph.initializer}
    assert places == {"big": TensorProto.EXTERNAL, "small": TensorProto.DEFAULT}
    entries = {e.key: e.value for e in bare.graph.initializer[0].external_data}
    assert entries == {"location": "m.onnx.data", "offset": "0", "length": "4000"}


def test_other_readers_agree_on_the_written_files(stored: Path) -> None:
    onnx.checker.check_model(stored)
    loaded = onnx.load(stored)
    assert [numpy_helper.to_array(t)[0] for t in loaded.graph.initializer] == [0, 1]
    outputs = ort.InferenceSession(stored).run(None, {})
    assert np.array_equal(outputs[1], BIG + 1)


def test_tensors_start_at_page_boundaries(stored: Path) -> None:
    bare = onnx.load(stored, load_external_data=False)
    offsets = [
        int(e.value) for t in bare.graph.initializer for e in t.external_data if e.key == "offset"
    ]
    assert offsets == [0, 4096]


def test_model_past_the_protobuf_limit_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "PROTOBUF_LIMIT", 7000)
    one = numpy_helper.from_array(BIG, "a")
    two = numpy_helper.from_array(BIG, "b")
    assert len(save(from_proto(model_proto(one)), tmp_path / "small.onnx")) == 1
    paths = save(from_proto(model_proto(one, two)), tmp_path / "large.onnx")
    assert [p.name for p in paths] == ["large.onnx", "large.onnx.data"]
    assert np.array_equal(value(load(paths[0]), "b"), BIG)


def test_constant_nodes_count_towards_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "PROTOBUF_LIMIT", 3000)
    held = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(BIG))
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1000])
    proto = model_proto()
    proto.graph.CopyFrom(helper.make_graph([held], "g", [], [info]))
    assert len(save(from_proto(proto), tmp_path / "m.onnx")) == 2


def test_protobuf_over_its_limit_is_a_clear_error(tmp_path: Path) -> None:
    class TooLarge:
        def SerializeToString(self) -> bytes:
            raise ValueError("exceeds maximum protobuf size of 2GB")

    with pytest.raises(SaveError, match="limit of 2 GiB") as caught:
        model_files.write_model(lambda writer: TooLarge(), tmp_path / "m.onnx", False)  # type: ignore[arg-type,return-value]
    assert caught.value.fix == "save with external data"
    assert not list(tmp_path.iterdir())


def test_more_than_two_gib_of_external_data(tmp_path: Path) -> None:
    """Offsets behind 2^32, in a sparse file so that the disk is not filled."""
    far = 5 << 30
    with (tmp_path / "d").open("wb") as file:
        file.truncate(far)
        file.seek(far)
        file.write(BIG.tobytes())
    huge = TensorProto(name="huge", data_type=TensorProto.UINT8, dims=[far])
    weights = [
        external(huge, location="d", offset=0, length=far),
        external(numpy_helper.from_array(BIG, "w"), location="d", offset=far, length=4000),
    ]
    model = load(write(tmp_path / "m.onnx", model_proto(*weights)))
    assert np.array_equal(value(model, "w"), BIG)
    assert value(model, "huge").shape == (far,)
    assert model_files.needs_external_data(model.graph.record.constants)


TYPED = {
    "float_data": TensorProto(data_type=TensorProto.FLOAT, dims=[600], float_data=[0.5] * 600),
    "double_data": TensorProto(data_type=TensorProto.DOUBLE, dims=[600], double_data=[0.1] * 600),
    "int64_data": TensorProto(data_type=TensorProto.INT64, dims=[600], int64_data=[-7] * 600),
    "int32_data": TensorProto(data_type=TensorProto.INT32, dims=[600], int32_data=[-7] * 600),
    "uint64_data": TensorProto(data_type=TensorProto.UINT64, dims=[600], uint64_data=[7] * 600),
    "int8": TensorProto(data_type=TensorProto.INT8, dims=[1200], int32_data=[-7] * 1200),
    "bool": TensorProto(data_type=TensorProto.BOOL, dims=[1200], int32_data=[1, 0] * 600),
    "float16": TensorProto(data_type=TensorProto.FLOAT16, dims=[600], int32_data=[15360] * 600),
    "bfloat16": TensorProto(data_type=TensorProto.BFLOAT16, dims=[600], int32_data=[16256] * 600),
    "complex64": TensorProto(data_type=TensorProto.COMPLEX64, dims=[600], float_data=[1, 2] * 600),
}


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("external_data", [False, True])
def test_tensors_in_typed_fields(tmp_path: Path, kind: str, external_data: bool) -> None:
    tensor = TensorProto()
    tensor.CopyFrom(TYPED[kind])
    tensor.name = "w"
    model = from_proto(model_proto(tensor))
    expected = numpy_helper.to_array(TYPED[kind])
    assert np.array_equal(value(model, "w"), expected)
    save(model, tmp_path / "m.onnx", external_data=external_data)
    if not external_data:
        assert_same(model_proto(tensor), onnx.load(tmp_path / "m.onnx"))
    assert np.array_equal(value(load(tmp_path / "m.onnx"), "w"), expected)


def test_string_tensors_stay_in_the_model(tmp_path: Path) -> None:
    words = [f"word {i} ü" for i in range(500)]
    tensor = helper.make_tensor("w", TensorProto.STRING, [500], [w.encode() for w in words])
    model = from_proto(model_proto(tensor))
    save(model, tmp_path / "m.onnx", external_data=True)
    assert_same(model_proto(tensor), onnx.load(tmp_path / "m.onnx"))
    assert value(load(tmp_path / "m.onnx"), "w").tolist() == words


def test_packed_types_through_external_data(tmp_path: Path) -> None:
    numbers = np.tile(np.int8([-8, 7, 3]), 1001).astype(ml_dtypes.int4)  # an odd count
    model = from_proto(model_proto())
    change(model, "w", numbers)
    save(model, tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size == 1502
    found = value(load(tmp_path / "m.onnx"), "w_1")
    assert np.array_equal(found.astype(np.int8), numbers.astype(np.int8))


# -- row 10: what graphsurgeon does to external data ----------------------------------------------


def test_row_10_replaced_value_is_written_and_loads_again(stored: Path, tmp_path: Path) -> None:
    """Both ways out: with external data again, and into one file."""
    model = load(stored)
    change(model, "a", BIG * 2)
    model.sweep()
    for external_data in (True, False):
        path = tmp_path / f"out-{external_data}" / "n.onnx"
        save(model, path, external_data=external_data)
        onnx.checker.check_model(path)
        first, second = ort.InferenceSession(path).run(None, {})
        assert np.array_equal(first, BIG * 2)
        assert np.array_equal(second, BIG + 1)


def test_row_10_to_proto_takes_external_data_in(stored: Path) -> None:
    proto = load(stored).to_proto()
    assert all(not t.external_data and not t.data_location for t in proto.graph.initializer)
    assert np.array_equal(numpy_helper.to_array(proto.graph.initializer[1]), BIG + 1)


# -- tensors that cannot be -------------------------------------------------------------------


def sparse(values: list[float], indices: object, dims: list[int]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32(values), "s"),
        numpy_helper.from_array(np.asarray(indices), "i"),
        dims,
    )


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (sparse([1.0], np.int64([4]), [2, 2]), "an index is outside"),
        (sparse([1.0], np.int64([-1]), [2, 2]), "an index is outside"),
        (sparse([1.0], np.int64([[0, 2]]), [2, 2]), "an index is outside"),
        (sparse([1.0, 2.0], np.int64([0]), [2, 2]), "2 values have indices of shape"),
        (sparse([1.0], np.int64([[0]]), [2, 2]), "1 values have indices of shape"),
        (sparse([1.0], np.int32([0]), [2, 2]), "its indices are int32"),
        (sparse([1.0], np.int64([0]), [-2, 2]), "negative dimension"),
        (sparse([1.0], np.int64([0]), [2**40]), "its dense form, .* bytes"),
    ],
)
def test_sparse_tensor_that_cannot_be(tensor: onnx.SparseTensorProto, why: str) -> None:
    with pytest.raises(InvalidModelError, match=why):
        SparseStoredValues(tensor)


def test_negative_dimension_is_not_taken_for_as_many_as_there_are() -> None:
    tensor = numpy_helper.from_array(np.float32([1, 2]), "w")
    tensor.dims[0] = -1
    with pytest.raises(InvalidModelError, match=r"'w'.* negative dimension"):
        StoredValues(tensor)


@pytest.mark.parametrize("location", ["n" * 300, "f/" * 3000 + "x"])
def test_external_name_too_long_for_the_disk(tmp_path: Path, location: str) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(LoadError, match=r"'w'.*File name too long"):
        StoredValues(tensor, tmp_path)


def test_external_strings_and_endless_dimensions(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(bytes(8))
    tensor = TensorProto(name="w", data_type=TensorProto.STRING, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="d")
    with pytest.raises(LoadError, match=r"'w'.* strings cannot be external data"):
        StoredValues(tensor, tmp_path)
    tensor.data_type = TensorProto.FLOAT
    tensor.dims[:] = [2**32, 2**32]
    tensor.external_data.add(key="length", value="0")
    with pytest.raises(LoadError, match=r"'w'.* do not match"):
        StoredValues(tensor, tmp_path)
