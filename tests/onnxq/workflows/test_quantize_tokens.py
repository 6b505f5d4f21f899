"""`onnxq.quantize` of an encoder of tokens: embeddings, masks and integer inputs."""

from __future__ import annotations

import pytest

from onnxq.backend import Backend, backends
from onnxq.errors import LoadError
from onnxq.workflows.quantize import quantize
from tests.models.token_encoder import WORDS, token_encoder, token_samples

WRITERS = sorted(
    name for name, each in backends().items() if isinstance(each, Backend) and each.writes
)


@pytest.mark.parametrize("backend", [name for name in WRITERS if name != "ncnn"])
def test_every_backend(backend: str) -> None:
    done = quantize(token_encoder(), backend, token_samples(), method="min-max")
    assert done.proven


def test_a_mask_is_not_rounded_where_nnie_cannot_tell_it_from_the_scores() -> None:
    done = quantize(token_encoder(), "nnie", token_samples(), method="min-max")
    assert any("'score': goes to" in note and "unrounded" in note for note in done.notes)


def test_a_sample_that_cannot_be_run_is_named() -> None:
    data = token_samples()
    data[6]["ids"][0, 3] = WORDS
    with pytest.raises(LoadError, match=r"sample 7 \(index 6, data\[6\]\): onnxrun") as caught:
        quantize(token_encoder(), "onnxruntime", data)
    assert "remove the sample" in (caught.value.fix or "")
