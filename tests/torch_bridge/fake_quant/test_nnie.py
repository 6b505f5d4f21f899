"""16 levels per octave over 8 octaves; dx = dy."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.canonical import fake_quantize_log
from onnxq.edit import insert
from onnxq.errors import OptionError
from tests.models.build import parse, run, tensor
from tests.torch_bridge.fake_quant.quantizers import Given, gradients, make, spec

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.fake_quant import algorithm  # noqa: E402
from torch_bridge.fake_quant.nnie import logarithmic  # noqa: E402


def oracle(x: np.ndarray, c: float) -> np.ndarray:
    """Element by element, as the formula reads."""
    base = np.rint(16 * np.log2(c)) - 127
    out = np.zeros(x.shape)
    for i, value in np.ndenumerate(x.astype(np.float64)):
        if value > 2 ** ((base - 16) / 16):
            out[i] = 2 ** ((np.clip(np.rint(16 * np.log2(value)) - base, 0, 127) + base) / 16)
        elif value < -(2 ** ((base - 15) / 16)):
            out[i] = -(2 ** ((np.clip(np.rint(16 * np.log2(-value)) - base, 1, 127) + base) / 16))
    return out


@pytest.mark.parametrize("c", [1.0, 5.7, 1e-3])
def test_forward_and_backward(c: float) -> None:
    quantizer = make("nnie", spec(lo=-127), c / 127)
    assert np.isclose(quantizer.data_max, c, rtol=1e-6)
    octaves = 2.0 ** torch.linspace(-12, 3, 500)
    x = torch.cat([c * octaves, -c * octaves, torch.zeros(2), torch.randn(200) * c])
    dy = torch.randn(x.shape)
    want = oracle(x.numpy(), quantizer.data_max.item())
    assert (want == 0).any()
    assert np.allclose(quantizer(x).numpy(), want, rtol=1e-6, atol=0)
    dx, parameters = gradients(quantizer, x, dy)
    assert np.array_equal(dx, dy.numpy())
    assert parameters == {}


def test_the_thresholds_themselves_become_zero() -> None:
    quantizer = make("nnie", spec(lo=-127), 1 / 127)
    base = -127.0
    x = torch.tensor([2 ** ((base - 16) / 16), -(2 ** ((base - 15) / 16))], dtype=torch.float64)
    quantizer.data_max = torch.ones(())
    assert torch.equal(quantizer(x), torch.zeros(2, dtype=torch.float64))


def test_rounding_twice_changes_nothing() -> None:
    quantizer = make("nnie", spec(lo=-127), 3.3 / 127)
    y = quantizer(torch.randn(500))
    assert torch.equal(quantizer(y), y)


def test_it_has_no_affine_parameters() -> None:
    with pytest.raises(OptionError, match="no scale"):
        make("nnie", spec(), 0.1).qparams("x")


@pytest.mark.parametrize("fields", [{"axis": 0}, {"symmetric": False}])
def test_other_grids_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="'nnie' cannot be"):
        algorithm("nnie")(spec(**fields), Given(1.0))


@pytest.mark.parametrize("c", [1.0, 5.7, 1e-3])
def test_training_and_the_canonical_op_agree_bit_for_bit(c: float) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    model.refresh()
    insert(model, tensor(model, "x"), lambda x, y, g: fake_quantize_log.make(model, x, y, c, g))
    octaves = c * 2.0 ** torch.linspace(-12, 3, 5000)
    x = torch.cat([octaves, torch.zeros(2), torch.randn(5000).abs() * c])
    data_max = torch.tensor(np.float32(c))
    positive = logarithmic(x, data_max).numpy()
    assert run(model, x.numpy())[0].tobytes() == positive.tobytes()
    both = torch.cat([x, -x])
    got = fake_quantize_log.logarithmic(both.numpy(), float(np.float32(c)))
    assert got.tobytes() == logarithmic(both, data_max).numpy().tobytes()
