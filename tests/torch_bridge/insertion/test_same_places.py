"""A network is quantized at the same places by training and on its ONNX graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the training side needs torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

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


class Moves(nn.Module):
    """Operators that move values between convolutions, and one sum of what is never negative."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(4, 4, 1), nn.Conv2d(1, 2, 1)
        self.shuffle, self.pool = nn.PixelShuffle(2), nn.AdaptiveMaxPool2d(1)

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        stem = self.stem(x).index_select(3, order)
        return self.last(self.pool(self.shuffle(F.softplus(stem) + stem.abs())))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...], dict[str, Any]]] = {
    name: (ARCHITECTURES[name].build, ARCHITECTURES[name].inputs(2), ARCHITECTURES[name].kwargs(2))
    for name in ("mobilenet_v2", "unet", "conv1d")
}
NETWORKS["moves"] = Moves, (torch.randn(2, 4, 4, 4), torch.tensor([3, 1, 0, 2])), {}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("backend", sorted(backends()))
def test_training_and_graph_agree(backend: str, network: str, tmp_path: Path) -> None:
    build, inputs, kwargs = NETWORKS[network]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        q = prepare(build(), backend, inputs, kwargs)
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
