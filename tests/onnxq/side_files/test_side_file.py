"""A format's value: text or bytes, and what it says about itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from onnxq.errors import LoadError, OptionError, SaveError
from onnxq.graph import new_model
from onnxq.quant.log_params import LogParams
from onnxq.quant.qparam_table import QParamTable
from onnxq.quant.qparams import QParams, Reader, Role
from onnxq.quant.qtypes import qtype
from onnxq.side_files.side_file import SideFile, find_format, formats
from tests.models.build import parse

TEXT = SideFile("t", "text", lambda table, model: "größe", lambda text, model: QParamTable())
BINARY = SideFile(
    "b",
    "bytes",
    lambda table, model: b"\xff\x00",
    lambda data, model: QParamTable(),
    recognises=lambda data: data[:1] == b"\xff",
    detection="bytes that start with 255",
    binary=True,
)


def test_text_is_utf_8_with_or_without_its_mark() -> None:
    assert TEXT.decode("größe".encode()) == "größe"
    assert TEXT.decode("größe".encode("utf-8-sig")) == "größe"
    with pytest.raises(LoadError, match="byte 1 is not UTF-8"):
        TEXT.decode(b"a\xff")


def test_bytes_stay_bytes() -> None:
    assert BINARY.decode(b"\xff\x00") == b"\xff\x00"
    assert BINARY.accepts(b"\xff\x00")
    assert not BINARY.accepts(b"text")


def test_content_that_is_no_text_is_of_no_text_format() -> None:
    for known in formats().values():
        assert isinstance(known, SideFile)
        assert not known.accepts(b"\xff\xfe\x00")
        assert not known.accepts(b"")
    assert not TEXT.accepts(b"anything")


def test_every_format_of_onnxq_knows_its_own_content_and_no_other() -> None:
    known = list(formats().values())
    model = new_model("empty")
    for side_file in known:
        content = side_file.write(QParamTable(), model)
        data = content if isinstance(content, bytes) else content.encode()
        told = [f.name for f in known if f.accepts(data)]
        if not data.strip(b"{}\n") or side_file.name == "mnn-compression":
            # Nothing written, or a protobuf without layers: no format is told by that.
            assert told == []
        elif side_file.name == "ppq-qnn":  # without a tensor it is the same file as MQBench's
            assert told == ["mqbench-snpe"]
        else:
            assert told == [side_file.name]
        assert len(side_file.read(side_file.decode(data), model)) == 0
        assert not side_file.float_tensors(content)


def test_the_listing_says_how_a_format_is_told() -> None:
    assert TEXT.to_json()["detection"] == "not recognised by content"
    for found in formats().values():
        listed = found.to_json()
        assert listed["name"] == found.name
        assert listed["detection"] == found.detection != ""


NET = """g (float[1,2,1,1] x) => (float[1,2,1,1] y) <float[2,2,1,1] w = {0.5, 0.5, 0.5, 0.5}> {
    [relu] r = Relu(x) [layer] a = Conv(r, w) [tanh] b = Tanh(r) [sum] y = Add(a, b) }"""
CANDIDATES = [("uint8", 0, 0, 255), ("int8", 0, -128, 127), ("int8", 0, -127, 127)]


@pytest.mark.parametrize("name", sorted(formats()))
def test_formats_say_whether_a_row_may_be_for_some_readers(name: str) -> None:
    """The layer reads 'r' rounded and Tanh reads it as it is: written, or refused for that."""
    side_file = find_format(name)
    model = parse(NET)
    weight = QParams("w", qtype("int8"), np.float64(0.5), 0, lo=-127, role=Role.WEIGHT)
    refusals = []
    for kind, zero, lo, hi in CANDIDATES:
        row = QParams("r", qtype(kind), np.float64(0.5), zero, lo=lo, hi=hi)
        row = row.with_(readers=(Reader("a", 0),))
        logs = [LogParams("r", 4.0, readers=row.readers)] if name == "mqbench-nnie" else []
        table = QParamTable([] if logs else [row, weight], logs)
        try:
            held = side_file.read(side_file.write(table, model), model)
        except SaveError as error:
            refusals.append(error.what)
        else:
            assert side_file.readers
            rows = [r for r in (*held, *held.logarithmic) if r.role is Role.ACTIVATION]
            assert [r.readers for r in rows] == [row.readers]
            return
    assert not side_file.readers
    assert any("only some of its consumers" in refusal for refusal in refusals), refusals


@pytest.mark.parametrize(
    ("wrong", "fix"),
    [({"suffix": "csv"}, "write '.csv'"), ({"detection": ""}, "say in `detection`")],
)
def test_half_a_format_is_refused(wrong: dict[str, str], fix: str) -> None:
    with pytest.raises(OptionError, match="format 'b'") as caught:
        replace(BINARY, **wrong)
    assert fix in caught.value.fix


def test_functions_that_return_nothing_are_named() -> None:
    model = new_model("empty")
    mute = replace(TEXT, write=lambda table, model: None, read=lambda text, model: None)
    with pytest.raises(OptionError, match=r"format 't': write\(\) returned nothing"):
        mute.write_some(QParamTable(), model)
    with pytest.raises(OptionError, match=r"format 't': read\(\) returned nothing"):
        mute.read_table("", model)
    with pytest.raises(OptionError, match=r"format 't': write\(\) returned a bytes"):
        replace(TEXT, write=BINARY.write).write_some(QParamTable(), model)
