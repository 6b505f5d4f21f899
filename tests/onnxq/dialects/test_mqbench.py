"""What MQBench's operators compute, against torch and against the written formulas."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.dialects.mqbench import implied_axis, on_grid, power_of_two
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from tests.models.build import parse, tensor

RNG = np.random.default_rng(0)


def params(
    kind: str = "uint8", scale: object = 0.037, zero: object = 11, **more: object
) -> QParams:
    return QParams("w", qtype(kind), np.asarray(scale, np.float32), np.asarray(zero), **more)  # type: ignore[arg-type]


def ties(p: QParams, count: int = 4000) -> np.ndarray:
    """Values at and next to half way between codes, and random ones."""
    scale = p.scale.reshape(-1)[0]
    half = (RNG.integers(-20, 300, count) + 0.5).astype(np.float32) * scale
    return np.concatenate(
        [half, np.nextafter(half, np.float32(0)), RNG.standard_normal(count).astype(np.float32)]
    )


def test_learnable_and_fixed_are_torch_bit_for_bit() -> None:
    torch = pytest.importorskip("torch", reason="compares with torch")
    p = params()
    x = ties(p)
    want = torch.fake_quantize_per_tensor_affine(torch.from_numpy(x), float(p.scale), 11, 0, 255)
    assert np.array_equal(on_grid(x, p, "fixed"), want.numpy())
    learnable = torch._fake_quantize_learnable_per_tensor_affine(
        torch.from_numpy(x), torch.tensor([p.scale.item()]), torch.tensor([11.3]), 0, 255, 1.0
    )
    assert np.array_equal(on_grid(x, p, "learnable"), learnable.numpy())
    assert not np.array_equal(p.fake(x), want.numpy()), "ties do not tell division from product"


def test_per_channel_is_torch_bit_for_bit() -> None:
    torch = pytest.importorskip("torch", reason="compares with torch")
    scale = RNG.uniform(0.001, 0.1, 6).astype(np.float32)
    p = params("int8", scale, np.zeros(6, np.int64), axis=1, lo=-127)
    x = RNG.standard_normal((5, 6, 7)).astype(np.float32)
    want = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(x),
        torch.from_numpy(scale),
        torch.zeros(6, dtype=torch.int32),
        1,
        -127,
        127,
    )
    assert np.array_equal(on_grid(x, p, "learnable"), want.numpy())


def test_soft_steps_of_dsq_end_where_rounding_ends() -> None:
    p = params()
    x = RNG.uniform(-1, 10, 5000)
    alpha = 0.4
    t, k = 1 / (1 - alpha), np.log(2 / alpha - 1)
    v = np.clip(x / float(p.scale) + 11, 0, 255)
    phi = np.floor(v) + t / 2 * np.tanh(k * (v - np.floor(v) - 0.5)) + 0.5
    want = (np.rint(phi) - 11) * float(p.scale)
    got = on_grid(x.astype(np.float32), p, "dsq")
    assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("scale", "want"),
    [(0.25, 0.25), (0.26, 0.5), (0.5, 0.5), (0.3, 0.5), (1.0, 1.0), (2.0**-15, 2.0**-15)],
)
def test_tqt_rounds_the_scale_up_to_a_power_of_two(scale: float, want: float) -> None:
    assert power_of_two(np.float32(scale)) == want
    assert want == 2.0 ** -np.floor(np.log2(1 / scale))


def test_tqt_takes_scales_that_are_too_small_for_one() -> None:
    assert power_of_two(np.float32(2.0**-16)) == 1


@pytest.mark.parametrize(
    ("readers", "axis"),
    [
        ("y = Conv(x, w)\n z = Relu(x)", 0),
        ("y = ConvTranspose(x, w)\n z = Relu(x)", 1),
        ("y = ConvTranspose(x, w)\n z = Conv(x, w)", None),
        ("t = Transpose(w)\n y = MatMul(x, t)\n z = Relu(x)", 0),
    ],
)
def test_the_axis_follows_from_the_layer(readers: str, axis: int | None) -> None:
    model = parse(
        f"g (float[1,2,3,3] x, float[2,2,1,1] w) => (float[N] y, float[M] z) {{ {readers} }}"
    )
    assert implied_axis(tensor(model, "w")) == axis
