"""Reading: any dialect, with or without encodings, to one canonical model."""

from __future__ import annotations

import pytest

from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.errors import BackendError, OptionError
from onnxq.graph import from_proto
from onnxq.quant.qparam_table import QParamTable
from onnxq.reading import READERS
from onnxq.workflows.demo import build, quantize
from onnxq.workflows.read_source import read
from onnxq.workflows.side_export import export_side_file
from tests.models.build import parse
from tests.models.zoo import ZOO


def test_a_dialect_becomes_canonical_in_a_copy() -> None:
    model = from_proto(ZOO["qdq_residual"]())
    before = model.to_proto()
    source = read(model)
    assert model.to_proto() == before
    assert source.model.nodes(FAKE_QUANTIZE)
    assert not source.model.nodes("QuantizeLinear")
    assert [trace.name for trace in source.traces] == list(READERS)
    assert source.notes == []


@pytest.mark.parametrize("several", [False, True])
def test_encodings_are_put_in(several: bool) -> None:
    made = export_side_file(quantize(build()), "onnxq", verify=False)
    plain = made.artifacts[0].content
    told: list[str] = []
    encodings = [made.table, QParamTable()] if several else made.table
    source = read(plain, encodings=encodings, progress=told.append)  # type: ignore[arg-type]
    assert len(source.model.nodes(FAKE_QUANTIZE)) == len(list(made.table))
    assert told == ["reading quantizers", "reading encodings"]


def test_weights_without_encodings_are_refused() -> None:
    with pytest.raises(OptionError, match="no encodings were given"):
        read(quantize(build()), weights="max")


def test_a_model_without_quantizers_is_refused() -> None:
    with pytest.raises(BackendError, match="no quantizers that onnxq can read"):
        read(build())


def test_what_cannot_be_read_is_a_note() -> None:
    model = parse(
        """g (float[2,4] x, float s) => (float[2,4] y) <float t = {0.1}, uint8 z = {7}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            r = Neg(d)
            p = QuantizeLinear(r, t, z)
            y = DequantizeLinear(p, t, z)
        }"""
    )
    notes = read(model).notes
    assert notes
    assert all(note.startswith("left as it is: ") for note in notes)
