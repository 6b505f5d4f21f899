"""ncnn: its own files, proven by reading them back; the table as a variant."""

from __future__ import annotations

import numpy as np
import pytest

import onnxq
from onnxq.backend import find_backend
from onnxq.errors import BackendError, SaveError
from onnxq.ncnn.program import read_bin, read_param
from onnxq.workflows import demo
from tests.models.networks import NETWORKS
from tests.onnxq.backends.check import proven


@pytest.mark.parametrize("network", ["unet", "transformer", "conv1d"])
def test_table(network: str) -> None:
    done = proven("ncnn", network, "table")
    assert [a.suffix for a in done.artifacts] == ["_deploy_model.onnx", ".ncnn.table"]


@pytest.mark.parametrize("network", ["resnet", "mobilenet"])
def test_a_table_cannot_say_what_an_add_reads(network: str) -> None:
    """A skip connection reads the rounded tensor as well; the table rounds for int8 layers."""
    with pytest.raises(SaveError, match="consumers other than int8 layers see it rounded"):
        proven("ncnn", network, "table")


@pytest.mark.parametrize("network", NETWORKS)
def test_network(network: str) -> None:
    done = proven("ncnn", network, None)
    param, data = (a.content for a in done.artifacts[1:])
    assert isinstance(param, str)
    assert isinstance(data, bytes)
    layers = read_bin(data, read_param(param))
    kernels = [la.weights[0].dtype for la in layers if la.type in ("Convolution", "InnerProduct")]
    assert kernels
    assert all(kind == np.int8 for kind in kernels)


def test_a_network_for_another_grid_is_refused() -> None:
    with pytest.raises(BackendError, match="ncnn"):
        onnxq.convert(demo.quantize(demo.build()), "ncnn")


def test_scheme_and_placement() -> None:
    backend = find_backend("ncnn")
    assert backend.scheme.activation.range == backend.scheme.weight.range == (-127, 127)
    assert backend.placement.inputs == backend.placement.weights == {"Conv", "Linear"}
    assert not backend.placement.moves
