"""Side files put into float models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE, params_of
from onnxq.errors import BackendError, LoadError, OptionError, SaveError
from onnxq.graph import Model, load, save
from onnxq.parsing import strict_json
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qtypes import qtype
from onnxq.side_files.side_file import SideFile, find_format, formats
from onnxq.workflows import demo
from onnxq.workflows.encodings import detect, read_all, read_content, with_encodings
from onnxq.workflows.side_export import export_side_file
from tests.models.canonical import assert_same_outputs
from tests.onnxq.formats.tables import model

OTHERS = {
    "mqbench-nnie": "its grid is linear",
    "ascend-record": "not all its consumers are layers",
    "mqbench-stpu": "one scale per channel",
    "mqbench-vitis": "must be a power of two",
    "ncnn-table": "range -128..127",
    "ppq-mnn": "must be -127..127",
}
"""Formats that cannot hold the demonstration network, and why."""
FORMATS = [
    name
    for name, known in sorted(formats().items())
    if name not in OTHERS and isinstance(known, SideFile) and not known.magnitudes
]


@pytest.fixture(scope="module")
def source() -> Model:
    return demo.quantize(demo.build())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, source: Model) -> Path:
    """The demonstration network as a clean model with a side file of every format."""
    made = tmp_path_factory.mktemp("side")
    for name in FORMATS:
        export_side_file(source, name, stem="demo", verify=False).save(made)
    return made


def side(folder: Path, name: str) -> Path:
    (found,) = folder.glob(f"demo_{name}.*")
    return found


@pytest.mark.parametrize(("name", "why"), OTHERS.items())
def test_what_a_format_cannot_hold_is_refused(name: str, why: str, source: Model) -> None:
    with pytest.raises(SaveError, match=why):
        export_side_file(source, name, verify=False)


def test_magnitudes_alone_do_not_restore_the_model(source: Model) -> None:
    assert not export_side_file(source, "mqbench-ppl-cuda").proven


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_restores_the_model(name: str, folder: Path, source: Model) -> None:
    clean = load(folder / "demo_float.onnx")
    assert not clean.nodes(FAKE_QUANTIZE)
    weights = None if find_format(name).weights else "max"
    model, notes = with_encodings(clean, side(folder, name), weights=weights)
    assert notes[0] == f"encodings read as {name}"
    assert_same_outputs(source, model)
    assert not clean.nodes(FAKE_QUANTIZE), "the model given is left alone"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime"])
def test_every_format_converts(name: str, backend: str, folder: Path) -> None:
    weights = None if find_format(name).weights else "max"
    path = folder / "demo_float.onnx"
    done = onnxq.convert(path, backend, encodings=side(folder, name), weights=weights)
    assert done.proven
    assert f"encodings read as {name}" in done.notes


def test_the_format_is_told_by_content_alone(folder: Path, tmp_path: Path) -> None:
    for name in FORMATS:
        path = tmp_path / f"{name}.bin"
        path.write_bytes(side(folder, name).read_bytes())
        given = read_all([path], load(folder / "demo_float.onnx"))
        assert [f.name for f in given.formats] == [name]


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(LoadError, match=r"a\.txt: not a side file in a known format") as caught:
        detect(b"nothing", "a.txt")
    for name in FORMATS:
        assert name in caught.value.fix


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ('{"version": "1.0.0",\n "activation_enc', "not complete JSON: line 2 column 2"),
        (
            '{"version": "3.7.0", "activation_encodings": []}',
            "version 3.7.0 is not supported (supported: 0.6.1, 1.0.0, 2.0.0, 2.1.0)",
        ),
    ],
)
def test_a_damaged_file_is_not_called_one_of_an_unknown_format(text: str, why: str) -> None:
    with pytest.raises(LoadError) as caught:
        detect(text.encode(), "a.json")
    assert caught.value.what == f"a.json: {why}"
    assert "tensorrt" not in caught.value.fix


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(LoadError, match=r"gone\.json: no such file"):
        with_encodings(load(folder / "demo_float.onnx"), folder / "gone.json")


def test_errors_of_a_format_name_the_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"tensorrt": {"blob_range": {"image": -1}}}')
    with pytest.raises(LoadError, match=r"bad\.json: range of tensor 'image' is -1"):
        with_encodings(load(folder / "demo_float.onnx"), path)


def test_several_files_make_one_table(folder: Path, source: Model, tmp_path: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    rows = read_all([side(folder, "onnxq")], clean).table
    weights = tmp_path / "weights.json"
    weights.write_text(QParamTable([r for r in rows if r.role == "weight"]).dumps())
    model, _ = with_encodings(clean, [side(folder, "tensorrt-cache"), weights])
    assert_same_outputs(source, model)
    with pytest.raises(LoadError, match=r"tensor 'image' is in both .*cache and .*ranges"):
        with_encodings(clean, [side(folder, "tensorrt-cache"), side(folder, "tensorrt-ranges")])


def test_a_table_is_taken_as_it_is(folder: Path, source: Model) -> None:
    clean = load(folder / "demo_float.onnx")
    table = read_all([side(folder, "aimet-2.0.0")], clean).table
    model, notes = with_encodings(clean, table)
    assert notes == []
    assert_same_outputs(source, model)


def edited(folder: Path, tmp_path: Path) -> Path:
    """Ranges with one tensor renamed."""
    document = json.loads(side(folder, "tensorrt-ranges").read_text())
    ranges = document["tensorrt"]["blob_range"]
    ranges["stem.relu.outt"] = ranges.pop("stem.relu.out")
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document))
    return path


def test_what_does_not_fit_is_refused_in_one_message(folder: Path, tmp_path: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    path = edited(folder, tmp_path)
    with pytest.raises(LoadError) as caught:
        with_encodings(clean, path)
    assert "'stem.relu.outt' (did you mean 'stem.relu.out'?)" in caught.value.what
    assert "1 in the graph, without a range:\n      'stem.relu.out'" in caught.value.what
    assert "--allow-missing" in caught.value.fix
    assert "weights" not in caught.value.what, "these ranges cannot hold any"
    model, notes = with_encodings(clean, path, allow_missing=True)
    assert "  'stem.relu.outt' (did you mean 'stem.relu.out'?)" in notes
    quantized = {params_of(n).tensor for n in model.nodes(FAKE_QUANTIZE)}
    assert "image" in quantized
    assert "stem.relu.out" not in quantized


CHANNELS = ["aimet-0.6.1", "aimet-1.0.0", "aimet-2.0.0", "onnxq", "ppl-nn", "rknn-hybrid"]
"""Formats with one scale per channel, with the axis in the file and without."""


@pytest.mark.parametrize("name", CHANNELS)
def test_a_renamed_weight_is_listed_with_the_name_that_was_meant(
    name: str, folder: Path, tmp_path: Path, source: Model
) -> None:
    clean = load(folder / "demo_float.onnx")
    text = side(folder, name).read_text()
    found = re.findall(r"[\"' ](stem[\w.]*w[\w.]*)[\"':]", text)
    path = tmp_path / "renamed"
    path.write_text(text.replace(found[0], f"{found[0]}x"))
    with pytest.raises(LoadError) as caught:
        with_encodings(clean, path)
    assert f"'{found[0]}x' (did you mean '{found[0]}'?)" in caught.value.what
    model, _ = with_encodings(clean, path, allow_missing=True)
    quantized = {params_of(n).tensor for n in model.nodes(FAKE_QUANTIZE)}
    assert quantized == {params_of(n).tensor for n in source.nodes(FAKE_QUANTIZE)} - {found[0]}


def test_a_target_wants_weights_and_says_where_they_come_from(folder: Path) -> None:
    path = folder / "demo_float.onnx"
    ranges = side(folder, "tensorrt-ranges")
    with pytest.raises(LoadError, match="the encodings leave tensors out:") as caught:
        onnxq.convert(path, "tensorrt", encodings=ranges, strict=True)
    assert "6 weights without a range" in caught.value.what
    assert "tensorrt-ranges contains no weights: add --weights max" in caught.value.fix
    for allow_missing in (False, True):
        done = onnxq.convert(path, "tensorrt", encodings=ranges, allow_missing=allow_missing)
        assert done.proven
        assert not [row for row in done.table if row.role == "weight"]
        assert "6 weights without a range:" in done.notes
        assert any(
            "tensorrt-ranges contains no weights: add --weights max" in n for n in done.notes
        )


def test_a_tensor_that_is_left_out_stays_float_unless_strict(folder: Path, tmp_path: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    document = json.loads(side(folder, "aimet-2.0.0").read_text())
    document["encodings"] = [e for e in document["encodings"] if e["name"] != "stem.relu.out"]
    path = tmp_path / "less.json"
    path.write_text(json.dumps(document))
    model, notes = with_encodings(clean, path)
    assert "stem.relu.out" not in {params_of(n).tensor for n in model.nodes(FAKE_QUANTIZE)}
    assert "1 in the graph, without a range:" in notes
    with pytest.raises(LoadError, match="1 in the graph, without a range") as caught:
        with_encodings(clean, path, strict=True)
    assert "without --strict" in caught.value.fix
    with pytest.raises(OptionError, match="strict"):
        with_encodings(clean, path, strict=True, allow_missing=True)
    whole = side(folder, "aimet-2.0.0")
    assert with_encodings(clean, whole, strict=True)[1] == ["encodings read as aimet-2.0.0"]


def test_a_type_that_the_target_does_not_have_is_a_matter_of_its_scheme(folder: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    rows = read_all([side(folder, "aimet-2.0.0")], clean).table
    wide = QParamTable(
        [
            row.with_(qtype=qtype("int16"), scale=row.scale / 256, lo=-32768, hi=32767)
            if row.tensor == "image"
            else row
            for row in rows
        ]
    )
    with_encodings(clean, wide)
    with pytest.raises(BackendError, match=r"'image' \(activation\): type int16"):
        onnxq.convert(clean, "tensorrt", encodings=wide)
    assert onnxq.convert(clean, "tensorrt", encodings=wide, allow_requantize=True).proven


def test_weights_given_are_not_quantized_again(folder: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    path = side(folder, "aimet-1.0.0")
    model, notes = with_encodings(clean, path, weights="max")
    assert notes == ["encodings read as aimet-1.0.0"]
    assert len(model.nodes(FAKE_QUANTIZE)) == len(read_all([path], clean).table)


def test_weights_from_their_values_are_what_tensorrt_computes(folder: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    model, notes = with_encodings(clean, side(folder, "tensorrt-cache"), weights="max")
    assert notes[-1].startswith("6 weights quantized from their own values")
    for node in model.nodes(FAKE_QUANTIZE):
        params = params_of(node)
        if params.axis is not None:
            value = node.inputs[0].values
            top = np.abs(value).reshape(value.shape[0], -1).max(axis=1)
            assert np.array_equal(params.scale, (top.astype(float) / 127).astype(np.float32))


def test_tensors_that_stay_float_are_told(folder: Path, tmp_path: Path) -> None:
    clean = load(folder / "demo_float.onnx")
    document = json.loads(side(folder, "aimet-1.0.0").read_text())
    entry = next(e for e in document["activation_encodings"] if e["name"] == "stem.relu.out")
    for key in ("scale", "offset"):
        del entry[key]
    entry |= {"dtype": "FLOAT", "bw": 16}
    path = tmp_path / "half.json"
    path.write_text(json.dumps(document))
    model, notes = with_encodings(clean, path)
    assert "'stem.relu.out' stays float, as its file says" in notes
    assert "stem.relu.out" not in {params_of(n).tensor for n in model.nodes(FAKE_QUANTIZE)}


def test_options_without_encodings_or_of_no_meaning(folder: Path, source: Model) -> None:
    with pytest.raises(OptionError, match="no encodings were given"):
        onnxq.convert(source, "tensorrt", weights="max")
    with pytest.raises(OptionError, match="there are none"):
        onnxq.convert(source, "tensorrt", strict=True)
    with pytest.raises(OptionError, match="'min'"):
        with_encodings(source, QParamTable(), weights="min")  # type: ignore[arg-type]


def test_a_model_with_quantizers_takes_the_rest_from_a_file(
    folder: Path, source: Model, tmp_path: Path
) -> None:
    clean = load(folder / "demo_float.onnx")
    half, _ = with_encodings(clean, side(folder, "tensorrt-ranges"))
    save(half, tmp_path / "half.onnx")
    weights = [r for r in read_all([side(folder, "onnxq")], clean).table if r.role == "weight"]
    model, _ = with_encodings(load(tmp_path / "half.onnx"), QParamTable(weights))
    assert_same_outputs(source, model)


def test_a_quantizer_in_the_model_and_one_in_the_file_is_an_error(
    folder: Path, source: Model
) -> None:
    """Neither may win: not even one that agrees, since one file may be older than the other."""
    ranges = side(folder, "tensorrt-ranges")
    names = [row.tensor for row in read_all([ranges], load(folder / "demo_float.onnx")).table]
    with pytest.raises(LoadError, match="the model already has quantizers on 'image', ") as caught:
        onnxq.convert(source, "tensorrt", encodings=ranges)
    assert all(f"'{name}'" in caught.value.what for name in names)
    assert "-p remove-fake-quant" in caught.value.fix


def test_a_side_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    with pytest.raises(LoadError, match=r"large.json: the file has 314572800 bytes; the limit is"):
        read_content(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe{\0}\0",
        b'{"version": "0.6.1", "activation_encodings": {"caf\xe9": []}}',
        b"\0" * 10,
        b'{"version": "0.6.1"\0}',
        b'{"version": "0.6.1", "activation_encodings": {"\\ud800": []}}',
    ],
)
def test_what_is_no_text_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(data)
    with pytest.raises(LoadError, match=r"file\.json: "):
        read_all([tmp_path / "file.json"], model())


def test_a_mark_of_byte_order_is_passed_over(tmp_path: Path) -> None:
    text = find_format("onnxq").write(QParamTable(), model())
    assert isinstance(text, str)
    (tmp_path / "file.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_all([tmp_path / "file.json"], model()).table.is_empty


def test_no_document_is_kept_when_the_format_is_known() -> None:
    detect(QParamTable().dumps().encode(), "file")
    assert strict_json.peek.cache_info().currsize == 0
