"""A network is quantized at the same places by training and on its ONNX graph."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the training side needs torch")

from onnxq.analysis.quantizer_places import QuantizerPlaces  # noqa: E402
from onnxq.backend import (  # noqa: E402
    backends,
    find_backend,
)
from onnxq.errors import UnsupportedModelError  # noqa: E402
from onnxq.graph import load  # noqa: E402
from onnxq.quant.qparams import Role  # noqa: E402
from passes.collect_qparams import CollectQParams  # noqa: E402
from passes.lower_constants import LowerConstants  # noqa: E402
from passes.remove_fake_quant import RemoveFakeQuant  # noqa: E402
from tests.models.build import apply  # noqa: E402
from tests.torch_bridge.models import ARCHITECTURES  # noqa: E402
from torch_bridge.export import export  # noqa: E402
from torch_bridge.prepare import prepare  # noqa: E402
from torch_bridge.state import enable_calibration, enable_quantization  # noqa: E402


@pytest.mark.parametrize("network", ["mobilenet_v2", "unet", "conv1d"])
@pytest.mark.parametrize("backend", sorted(backends()))
def test_training_and_graph_agree(backend: str, network: str, tmp_path: Path) -> None:
    architecture = ARCHITECTURES[network]
    inputs, kwargs = architecture.inputs(2), architecture.kwargs(2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        q = prepare(architecture.build(), backend, inputs, kwargs)
    try:
        enable_calibration(q)
    except UnsupportedModelError:
        pytest.skip("these rules quantize nothing in this network")
    with torch.no_grad():
        q.train()(*inputs, **kwargs)
    enable_quantization(q)
    path = export(q.eval(), inputs, tmp_path / "m.onnx", kwargs=kwargs)
    clean, _ = apply(load(path), LowerConstants(), CollectQParams(), RemoveFakeQuant())
    rows = [*clean.qparams, *clean.qparams.logarithmic]
    trained = {row.tensor for row in rows if row.role is Role.ACTIVATION}
    places = QuantizerPlaces(clean, find_backend(backend).placement)
    assert {t.name for place in places.activations() for t in place.tensors} == trained
