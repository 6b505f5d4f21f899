"""Writing: the files of a backend from a legal model, which stays as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onnxq.backend import backends, find_backend
from onnxq.canonical.fake_quantize import FAKE_QUANTIZE
from onnxq.errors import BackendError
from onnxq.graph import Model
from onnxq.workflows.artifacts import written_apart
from onnxq.workflows.fit_to_backend import fit
from onnxq.workflows.write_outputs import check_clean, write
from tests.models.networks import quantized

WRITERS = sorted(name for name in backends() if find_backend(name).writes)


@pytest.mark.parametrize("name", WRITERS)
def test_all_files_of_a_backend_are_made(name: str) -> None:
    backend = find_backend(name)
    legal = fit(quantized("conv1d", backend), backend).model
    before = legal.to_proto()
    written = write(legal, backend)
    assert legal.to_proto() == before
    assert written.artifacts[0].content is written.model
    made = [artifact.suffix for artifact in written.artifacts]
    assert [o.suffix for o in backend.outputs if o.suffix in made] == made
    assert bool(written.notes) == (len(made) < len(backend.outputs))


def test_files_for_a_proof_are_gone_when_it_is_done() -> None:
    backend = find_backend("tensorrt")
    written = write(fit(quantized("conv1d", backend), backend).model, backend)
    with written_apart(written.artifacts) as files:
        assert [*files] == [output.suffix for output in backend.outputs]
        assert all(path.is_file() for path in files.values())
    assert not any(path.exists() for path in files.values())


def test_a_backend_without_a_writer_is_refused() -> None:
    chip = replace(find_backend("onnxruntime"), name="chip", outputs=(), proof=None, variants={})
    with pytest.raises(BackendError, match="cannot write files for chip"):
        write(quantized("conv1d", chip), chip)


def test_a_model_that_still_quantizes_is_not_clean() -> None:
    model: Model = quantized("conv1d", find_backend("onnxruntime"))
    assert model.nodes(FAKE_QUANTIZE)
    with pytest.raises(BackendError, match=r"'float\.onnx' would be a float model"):
        check_clean(model, "_float.onnx")
