"""A data file that another model needs is never overwritten."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from onnxq.disk import data_file
from onnxq.errors import SaveError
from onnxq.graph import Model, from_proto, load, save
from onnxq.pipeline import Dump
from tests.models.stored_models import (
    BIG,
    change,
    external,
    listing,
    model_proto,
    stored_model,
    value,
    write,
)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return stored_model(tmp_path)


def refer(path: Path, data: str) -> Path:
    """A model at `path` with a weight 'w' in the file `data`."""
    (path.parent / data).write_bytes(BIG.tobytes())
    tensor = external(numpy_helper.from_array(BIG, "w"), location=data)
    return write(path, model_proto(tensor))


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def times(model: Model, factor: float) -> Model:
    change(model, "w", BIG * factor)
    model.sweep()
    return model


def test_a_data_file_of_the_model_that_is_saved_elsewhere_is_kept(tmp_path: Path) -> None:
    source = refer(tmp_path / "in.onnx", "out.onnx.data")
    before = listing(tmp_path)
    assert names(save(load(source), tmp_path / "out.onnx")) == ["out.onnx", "out.onnx.1.data"]
    assert {n: d for n, d in listing(tmp_path).items() if n in before} == before
    assert np.array_equal(value(load(tmp_path / "out.onnx"), "w"), BIG)
    assert np.array_equal(value(load(source), "w"), BIG)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_link_to_a_data_file_is_that_file(tmp_path: Path, link: object) -> None:
    assert callable(link)
    source = refer(tmp_path / "in.onnx", "weights.bin")
    link(tmp_path / "weights.bin", tmp_path / "out.onnx.data")
    assert names(save(load(source), tmp_path / "out.onnx"))[1] == "out.onnx.1.data"
    assert np.array_equal(value(load(source), "w"), BIG)


def test_weights_that_a_pass_replaced_are_still_those_of_the_source(tmp_path: Path) -> None:
    source = refer(tmp_path / "in.onnx", "out.onnx.data")
    written = save(times(load(source).clone(), 2), tmp_path / "out.onnx", external_data=True)
    assert names(written)[1] == "out.onnx.1.data"
    assert np.array_equal(value(load(source), "w"), BIG)


def test_saving_again_takes_the_same_names(tmp_path: Path) -> None:
    source = refer(tmp_path / "in.onnx", "out.onnx.data")
    for factor in (2, 3):
        model = times(load(source), factor)
        written = save(model, tmp_path / "out.onnx", external_data=True)
        assert names(written) == ["out.onnx", "out.onnx.1.data"]
    assert len(listing(tmp_path)) == 4


def test_in_place_the_data_file_stays_the_one(stored: Path) -> None:
    for _ in range(2):
        assert names(save(load(stored), stored)) == ["m.onnx", "m.onnx.data"]
    assert sorted(listing(stored.parent)) == ["m.onnx", "m.onnx.data"]


def test_a_copy_of_the_model_keeps_its_weights(stored: Path) -> None:
    twin = Path(shutil.copy(stored, stored.with_name("copy.onnx")))
    model = load(stored)
    change(model, "a", BIG * 3)
    model.sweep()
    assert names(save(model, stored)) == ["m.onnx", "m.onnx.1.data"]
    assert np.array_equal(value(load(twin), "a"), BIG)
    assert np.array_equal(value(load(stored), "a_1"), BIG * 3)


def test_a_model_that_reaches_the_file_through_a_link_keeps_its_weights(stored: Path) -> None:
    stored.with_name("weights.bin").symlink_to("m.onnx.data")
    other = ModelProto.FromString(stored.read_bytes())
    for tensor in other.graph.initializer:
        tensor.external_data[0].value = "weights.bin"
    write(stored.with_name("other.onnx"), other)
    assert names(save(load(stored), stored))[1] == "m.onnx.1.data"


def test_a_model_elsewhere_of_the_same_name_is_another_model(stored: Path) -> None:
    """m.onnx is a link to far/copy.onnx; copy.onnx beside it is a model of its own."""
    shutil.copy(stored, stored.with_name("copy.onnx"))
    far = stored.with_name("far")
    far.mkdir()
    stored.rename(far / "copy.onnx")
    stored.symlink_to(far / "copy.onnx")
    assert names(save(load(stored), stored))[1] == "m.onnx.1.data"
    assert np.array_equal(value(load(stored.with_name("copy.onnx")), "a"), BIG)
    assert np.array_equal(value(load(stored), "a"), BIG)


def test_a_file_that_no_model_is_known_to_need_is_kept(tmp_path: Path) -> None:
    (tmp_path / "m.onnx.data").write_text("of the user")
    model = from_proto(model_proto())
    assert names(save(model, tmp_path / "m.onnx", external_data=True))[1] == "m.onnx.1.data"
    assert (tmp_path / "m.onnx.data").read_text() == "of the user"


def test_the_name_in_a_text_of_the_model_does_not_make_the_file_its_own(tmp_path: Path) -> None:
    proto = model_proto()
    proto.doc_string = "location m.onnx.data"
    write(tmp_path / "m.onnx", proto)
    (tmp_path / "m.onnx.data").write_text("of the user")
    written = save(from_proto(model_proto()), tmp_path / "m.onnx", external_data=True)
    assert names(written)[1] == "m.onnx.1.data"


def test_a_model_does_not_overwrite_its_own_weights(tmp_path: Path) -> None:
    source = refer(tmp_path / "in.onnx", "out.onnx")
    before = listing(tmp_path)
    for external_data in (True, False):
        with pytest.raises(SaveError, match=r"out\.onnx contains weights of .*in\.onnx"):
            save(load(source), tmp_path / "out.onnx", external_data=external_data)
    assert listing(tmp_path) == before


def test_a_dump_does_not_overwrite_weights(tmp_path: Path) -> None:
    from passes.drop_identity import DropIdentity

    source = refer(tmp_path / "in.onnx", "01-drop-identity.onnx.data")
    model = load(source)
    Dump(tmp_path)(0, DropIdentity(), model, None)  # type: ignore[arg-type]
    assert np.array_equal(value(load(source), "w"), BIG)
    assert np.array_equal(value(load(tmp_path / "01-drop-identity.onnx"), "w"), BIG)


def test_data_beside_a_private_model_is_private(stored: Path) -> None:
    stored.chmod(0o600)
    stored.with_name("m.onnx.data").unlink()
    save(from_proto(model_proto()), stored, external_data=True)
    assert stat.S_IMODE(stored.with_name("m.onnx.data").stat().st_mode) == 0o600


def test_a_pipe_beside_the_model_is_not_read(stored: Path) -> None:
    os.mkfifo(stored.with_name("pipe.onnx"))
    assert names(save(load(stored), stored)) == ["m.onnx", "m.onnx.data"]


def test_locations_are_found_wherever_a_tensor_may_be() -> None:
    def tensor(name: str) -> object:
        return external(numpy_helper.from_array(BIG, name), location=name)

    body = helper.make_graph([], "body", [], [], initializer=[tensor("body")])
    nodes = [
        helper.make_node("Constant", [], ["y"], value=tensor("attribute")),
        helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body),
    ]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [], [], initializer=[tensor("initializer")])
    )
    inner = helper.make_node("Constant", [], ["y"], value=tensor("function"))
    proto.functions.append(helper.make_function("d", "F", [], ["y"], [inner], []))
    sparse = proto.graph.sparse_initializer.add()
    sparse.values.CopyFrom(tensor("values"))
    sparse.indices.CopyFrom(tensor("indices"))
    assert data_file.locations(proto) == {
        *("initializer", "attribute", "body", "function", "values", "indices")
    }
