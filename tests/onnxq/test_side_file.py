"""A format's value: text or bytes, and what it says about itself."""

from __future__ import annotations

import pytest

from onnxq import discovery
from onnxq.errors import LoadError
from onnxq.graph import new_model
from onnxq.qparam_table import QParamTable
from onnxq.side_file import SideFile

TEXT = SideFile("t", "text", lambda table, model: "größe", lambda text, model: QParamTable())
BINARY = SideFile(
    "b",
    "bytes",
    lambda table, model: b"\xff\x00",
    lambda data, model: QParamTable(),
    recognises=lambda data: data[:1] == b"\xff",
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
    for known in discovery.formats().values():
        assert isinstance(known, SideFile)
        assert not known.accepts(b"\xff\xfe\x00")
        assert not known.accepts(b"")
    assert not TEXT.accepts(b"anything")


def test_every_format_of_onnxq_knows_its_own_content_and_no_other() -> None:
    known = list(discovery.formats().values())
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
    assert TEXT.to_json()["detection"] == "cannot be told from its content"
    for found in discovery.formats().values():
        listed = found.to_json()
        assert listed["name"] == found.name
        assert listed["detection"] == found.detection != ""
