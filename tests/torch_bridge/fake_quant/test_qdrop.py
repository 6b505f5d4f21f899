"""y = q with probability p, else x; gradients of LSQ (g = 1) where quantized, dy where not."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import OptionError
from tests.torch_bridge.fake_quant.quantizers import (
    Given,
    close,
    gradients,
    hard_values,
    make,
    spec,
)

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.fake_quant import algorithm  # noqa: E402


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("kind", "zero_point"), [("int4", 0), ("uint4", 5)])
def test_forward_and_backward(kind: str, zero_point: int, probability: float) -> None:
    x = hard_values(0.3, 10, 40)
    dy = torch.randn(10, 40)
    of = spec(kind, symmetric=False)
    quantizer = make("qdrop", of, 0.3, zero_point, probability=probability).train()
    torch.manual_seed(7)
    taken = torch.rand(10, 40).numpy() < probability
    torch.manual_seed(7)
    y = quantizer(x).detach().numpy()
    row = quantizer.qparams("x")
    assert np.array_equal(y, np.where(taken, row.fake(x.numpy()), x.numpy()))

    v = (x.numpy() / row.scale).astype(np.float64)
    low, high = of.lo - zero_point, of.hi - zero_point
    inside = (v > low) & (v < high)
    terms = dy.numpy() * np.where(inside, np.rint(v) - v, np.where(v <= low, low, high)) * taken
    torch.manual_seed(7)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, np.where(inside | ~taken, dy.numpy(), 0))
    assert close(parameters["scale"], terms.sum(), terms)


def test_evaluation_quantizes_everything() -> None:
    quantizer = make("qdrop", spec("int4"), 0.25, probability=0.1).eval()
    x = hard_values(0.25)
    assert np.array_equal(quantizer(x).detach().numpy(), quantizer.qparams("x").fake(x.numpy()))


@pytest.mark.parametrize("probability", [-0.1, 1.1])
def test_impossible_probabilities_are_refused(probability: float) -> None:
    with pytest.raises(OptionError, match="probability"):
        algorithm("qdrop")(spec(), Given(1.0), probability=probability)
