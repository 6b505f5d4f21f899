"""Every operator that is written for ncnn, read back and compared."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.ncnn import reader, writer
from onnxq.ncnn.operators import TRANSLATORS
from tests.models.build import run
from tests.onnxq.ncnn.cases import CASES, graph, values


@pytest.mark.parametrize("name", CASES)
def test_read_back(name: str) -> None:
    model, x = graph(name), values(name)
    (want,) = run(model, x)
    (got,) = run(reader.read(writer.write(model)), x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_every_operator_has_a_case() -> None:
    assert {name.split()[0] for name in CASES} - {"Swish"} == set(TRANSLATORS)
