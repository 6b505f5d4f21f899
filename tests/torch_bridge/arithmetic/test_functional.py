"""The functions against onnxruntime, numpy and their written gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxq.errors import QParamsError
from onnxq.quant.qparams import QParams
from onnxq.quant.qtypes import qtype
from onnxq.running import sessions

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic import functional, kernels  # noqa: E402
from torch_bridge.arithmetic.functional import fake_quantize, lsq, lsq_plus  # noqa: E402
from torch_bridge.arithmetic.grid import Grid  # noqa: E402

# What torch.compile imports says so about itself.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit.script:DeprecationWarning",
    "ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning",
)

SHAPE = (4, 6, 10)


def values(scale: Any = 0.0625) -> Any:
    """Normal values that the grids below clip heavily, half steps, whole steps, and extremes."""
    wide = torch.randn(SHAPE) * 5
    steps = torch.arange(-30, 30).reshape(SHAPE[1:])
    wide[:2] = (torch.stack([steps / 2, steps, steps, steps]) * scale)[:2]
    wide[2, 0] = torch.tensor([0.0, -0.0, 1e30, -1e30, torch.inf, -torch.inf, 1e-30, -1e-30, 1, -1])
    return wide


def grid(kind: str, shape: str, *, uniform: bool = False) -> dict[str, Any]:
    """Arguments of a quantizer over SHAPE."""
    of = qtype(kind)
    step = 12.0 / (of.hi - of.lo)
    sizes = {"tensor": (), "channel": (6,), "block": (4, 6, 4)}
    axis = {"tensor": None, "channel": 1, "block": 2}[shape]
    scale = (torch.rand(sizes[shape]) + 0.5) * step
    scale = torch.exp2(scale.log2().round()) if uniform else scale  # ties are exact then
    room = min(100, (of.hi - of.lo) // 4)
    zero_point = torch.randint(-room, room + 1, sizes[shape]) + (of.lo + of.hi + 1) // 2
    if uniform:
        zero_point = zero_point * 0 + (of.lo + of.hi + 1) // 2
    return {
        "scale": scale,
        "zero_point": zero_point.to(torch.int32),
        "grid": Grid(axis, of.lo, of.hi, 3 if shape == "block" else 0),
    }


def params(kind: str, g: dict[str, Any]) -> QParams:
    return QParams(
        "x",
        qtype(kind),
        g["scale"].detach().numpy(),
        g["zero_point"].numpy(),
        axis=g["grid"].axis,
        block=g["grid"].block,
        lo=g["grid"].lo,
        hi=g["grid"].hi,
    )


def same_bits(y: Any, want: np.ndarray) -> bool:
    got = y.detach().numpy()
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@pytest.fixture
def _compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(kernels, "_WORTH_COMPILING", 0)
    monkeypatch.setattr(kernels.native, "library", lambda: None)
    functional.compile_kernels(True)
    yield
    functional.compile_kernels(None)


KINDS = ["int8", "uint8", "int4", "uint4", "int2", "int16", "uint16"]
GRIDS = ["tensor", "channel", "block"]


# -- forward ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_the_oracle_to_the_last_bit(kind: str, shape: str) -> None:
    for uniform in (False, True):
        g = grid(kind, shape, uniform=uniform)
        x = values(torch.tensor(params(kind, g).broadcast(SHAPE)[0]))
        want = params(kind, g).fake(x.numpy())
        real = g["zero_point"].float()
        assert same_bits(fake_quantize(x, **g), want)
        assert same_bits(lsq(x, **g, grad_scale=1.0), want)
        assert same_bits(lsq_plus(x, **{**g, "zero_point": real}, grad_scale=1.0), want)


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16"])
def test_forward_is_onnxruntimes_to_the_last_bit(kind: str, shape: str) -> None:
    g = grid(kind, shape)
    of = qtype(kind)
    x = values()
    attrs = (
        {} if g["grid"].axis is None else {"axis": g["grid"].axis, "block_size": g["grid"].block}
    )
    sizes = list(g["scale"].shape)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, sizes),
        helper.make_tensor_value_info("z", of.onnx, sizes),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)
    graph = helper.make_graph(nodes, "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {
        "x": x.numpy(),
        "s": g["scale"].numpy(),
        "z": g["zero_point"].numpy().astype(of.dtype),
    }
    assert same_bits(fake_quantize(x, **g), sessions.reference(model).run(feeds)["y"])


def test_a_grid_met_by_another_grid_rounds_as_division_does() -> None:
    # Multiplying by 1/s instead puts one in eight of these into the next bin.
    scale = torch.tensor(0.1 / 3)
    x = torch.arange(-200, 200) * (scale / 2)
    g = {"scale": scale, "zero_point": torch.tensor(0), "grid": Grid(None, -128, 127)}
    want = params("int8", g).fake(x.numpy())
    assert same_bits(fake_quantize(x, **g), want)
    reciprocal = torch.fake_quantize_per_tensor_affine(x, scale.item(), 0, -128, 127)
    assert (reciprocal.numpy() != want).any()


def test_nan_stays_visible() -> None:
    g = grid("int8", "tensor")
    assert torch.isnan(fake_quantize(torch.tensor([torch.nan]), **g)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_computed_in_float32(dtype: Any) -> None:
    g = grid("int8", "channel")
    x = torch.randn(SHAPE).to(dtype)
    x.requires_grad_()
    y = fake_quantize(x, **g)
    assert y.dtype == dtype
    assert torch.equal(y, fake_quantize(x.float(), **g).to(dtype))
    y.sum().backward()
    assert x.grad.dtype == dtype


@pytest.mark.parametrize(
    ("axis", "scale_shape", "block"),
    [(None, (6,), 0), (1, (5,), 0), (3, (6,), 0), (-4, (6,), 0), (2, (4, 6, 3), 3), (2, (4,), 3)],
)
def test_scales_that_do_not_fit_are_refused(
    axis: int | None, scale_shape: tuple[int, ...], block: int
) -> None:
    scale = torch.ones(scale_shape)
    with pytest.raises(QParamsError, match="do not match"):
        fake_quantize(torch.randn(SHAPE), scale, scale.int(), Grid(axis, -8, 7, block))


def test_a_negative_axis_counts_from_the_end() -> None:
    g = grid("int8", "channel")
    x = values()
    assert torch.equal(
        fake_quantize(x, **g), fake_quantize(x, **{**g, "grid": g["grid"]._replace(axis=-2)})
    )


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_tensors_pass(shape: tuple[int, ...]) -> None:
    scale = torch.tensor(0.5, requires_grad=True)
    x = torch.zeros(shape, requires_grad=True)
    y = lsq(x, scale, torch.tensor(0), Grid(None, -8, 7), grad_scale=1.0)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert scale.grad == 0


# -- gradients --------------------------------------------------------------------------------


def oracle(x: Any, dy: Any, kind: str, g: dict[str, Any]) -> dict[str, np.ndarray]:
    """The gradients as written in `torch_bridge.arithmetic.kernels`, in float64.

    The quotient alone is float32, as everywhere: it decides what is inside.
    """
    scale, zero_point = params(kind, g).broadcast(SHAPE)
    with np.errstate(over="ignore"):
        v = (x.detach().numpy() / scale).astype(np.float64)
    low, high = g["grid"].lo - zero_point, g["grid"].hi - zero_point
    dy = dy.numpy().astype(np.float64)
    code = np.rint(v)
    in_range = (low <= code) & (code <= high)
    inside = (low < v) & (v < high)
    with np.errstate(invalid="ignore"):
        terms = np.where(inside, code - v, np.where(v <= low, low, high))
    return {
        "ste": np.where(in_range, dy, 0),
        "dx": np.where(inside, dy, 0),
        "ds": share(dy * terms, g),
        "dz": share(np.where(inside, 0, -scale.astype(np.float64) * dy), g),
        "size": share(np.abs(dy * terms), g),
    }


def share(terms: np.ndarray, g: dict[str, Any]) -> np.ndarray:
    """Sum over the elements of each scale."""
    if g["grid"].axis is None:
        return np.asarray(terms.sum())
    if not g["grid"].block:
        return terms.sum((0, 2))
    out = np.zeros(g["scale"].shape)
    for i in range(SHAPE[2]):
        out[:, :, i // g["grid"].block] += terms[:, :, i]
    return out


def assert_sums_agree(got: Any, want: np.ndarray, size: np.ndarray) -> None:
    """Equal but for float32 rounding of the terms and of their sum."""
    assert got.shape == want.shape
    assert np.all(np.abs(got.numpy() - want) <= 1e-5 * size + 1e-12)


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "int2", "int16"])
def test_gradients_are_the_written_ones(kind: str, shape: str) -> None:
    for uniform in (False, True):
        check_gradients(kind, shape, uniform)


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("shape", ["tensor", "channel"])
def test_compiled_gradients_are_the_written_ones(shape: str) -> None:
    check_gradients("int8", shape, uniform=False)


def check_gradients(kind: str, shape: str, uniform: bool) -> None:
    g = grid(kind, shape, uniform=uniform)
    x = values(torch.tensor(params(kind, g).broadcast(SHAPE)[0])).requires_grad_()
    dy = torch.randn(SHAPE)
    want = oracle(x, dy, kind, g)
    assert 0.05 < (want["ste"] == 0).mean() < 0.95  # clipped and not

    y = fake_quantize(x, **g)
    assert same_bits(y, params(kind, g).fake(x.detach().numpy()))
    (dx,) = torch.autograd.grad(y, x, dy)
    assert np.array_equal(dx.numpy(), want["ste"].astype(np.float32))

    g["scale"] = g["scale"].requires_grad_()
    y = lsq(x, **g, grad_scale=0.25)
    dx, ds = torch.autograd.grad(y, (x, g["scale"]), dy)
    assert np.array_equal(dx.numpy(), want["dx"].astype(np.float32))
    assert_sums_agree(ds, 0.25 * want["ds"], want["size"])

    real = (g["zero_point"] + 0.3).requires_grad_()
    y = lsq_plus(x, **{**g, "zero_point": real}, grad_scale=0.25)
    dx, ds, dz = torch.autograd.grad(y, (x, g["scale"], real), dy)
    assert np.array_equal(dx.numpy(), want["dx"].astype(np.float32))
    assert_sums_agree(ds, 0.25 * want["ds"], want["size"])
    assert_sums_agree(dz, 0.25 * want["dz"], np.abs(want["size"]))


@pytest.mark.parametrize("scale", [2.0**-4, 0.1 / 3, 1e-3, 7.7, 3e-39])
@pytest.mark.parametrize(("lo", "hi", "z"), [(-128, 127, 0), (0, 255, 0), (-8, 7, 3), (0, 3, 1)])
def test_the_mask_is_exact_next_to_every_border(scale: float, lo: int, hi: int, z: int) -> None:
    s = torch.tensor(scale)
    near = [
        np.float32((code - z + half) * s.item()) for code in (lo, hi) for half in (-0.5, 0, 0.5)
    ]
    for _ in range(6):
        near += [np.nextafter(v, np.float32(way)) for v in near[-12:] for way in (-np.inf, np.inf)]
    x = torch.tensor(np.array(near), requires_grad=True)
    g = {"scale": s, "zero_point": torch.tensor(z), "grid": Grid(None, lo, hi)}
    fake_quantize(x, **g).sum().backward()
    v = x.detach().numpy() / s.numpy()
    code = np.rint(v) + z
    assert np.array_equal(x.grad.numpy(), ((code >= lo) & (code <= hi)).astype(np.float32))
    x.grad = None
    lsq(x, **g, grad_scale=1.0).sum().backward()
    assert np.array_equal(x.grad.numpy(), ((v > lo - z) & (v < hi - z)).astype(np.float32))


def test_a_large_tensor_is_summed_in_pieces_and_exactly() -> None:
    x = torch.randn(3, 70_001, requires_grad=True)
    dy = torch.randn(3, 70_001)
    scale = torch.tensor(1e-4, requires_grad=True)
    g = {"zero_point": torch.tensor(0), "grid": Grid(None, -(2**15), 2**15 - 1)}
    y = lsq(x, scale, **g, grad_scale=1.0)
    dx, ds = torch.autograd.grad(y, (x, scale), dy)
    v = (x.detach().numpy() / np.float32(1e-4)).astype(np.float64)
    inside = (v > g["grid"].lo) & (v < g["grid"].hi)
    terms = dy.numpy() * np.where(inside, np.rint(v) - v, np.clip(v, g["grid"].lo, g["grid"].hi))
    assert np.array_equal(dx.numpy(), np.where(inside, dy.numpy(), 0))
    assert abs(ds.item() - terms.sum()) <= 1e-6 * np.abs(terms).sum()


def test_gradients_do_not_depend_on_the_memory_layout() -> None:
    x = torch.randn(2, 6, 5, 4) * 3
    dy = torch.randn(2, 6, 5, 4)
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        for dy_layout in (torch.contiguous_format, torch.channels_last):
            inner = x.contiguous(memory_format=layout).requires_grad_()
            scale = torch.tensor(0.1, requires_grad=True)
            y = lsq(inner, scale, torch.tensor(0), Grid(None, -8, 7), grad_scale=1.0)
            given = dy.contiguous(memory_format=dy_layout)
            results.append(torch.autograd.grad(y, (inner, scale), given))
    for dx, ds in results[1:]:
        assert torch.equal(dx, results[0][0])
        torch.testing.assert_close(ds, results[0][1])


def test_what_follows_may_work_in_place() -> None:
    x = torch.randn(5, requires_grad=True)
    scale = torch.tensor(0.1, requires_grad=True)
    y = lsq(x, scale, torch.tensor(0), Grid(None, -8, 7), grad_scale=1.0)
    y.relu_().sum().backward()
    assert x.grad is not None
    assert scale.grad is not None


def test_second_derivatives_do_not_fail() -> None:
    x = torch.randn(5, requires_grad=True)
    scale = torch.tensor(0.1, requires_grad=True)
    y = lsq(x, scale, torch.tensor(0), Grid(None, -8, 7), grad_scale=1.0)
    (dx,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
    dx.sum().backward()
    assert torch.isfinite(x.grad).all()


# -- compilers --------------------------------------------------------------------------------


def test_a_compiled_caller_computes_the_same() -> None:
    def step(x: Any, scale: Any, zero_point: Any) -> Any:
        return lsq(x, scale, zero_point, Grid(1, -8, 7), grad_scale=0.5)

    g = grid("int4", "channel")
    compiled = torch.compile(step, fullgraph=True)
    x, dy = values().requires_grad_(), torch.randn(SHAPE)
    results = []
    for call in (step, compiled):
        scale = g["scale"].clone().requires_grad_()
        y = call(x, scale, g["zero_point"])
        results.append((y, *torch.autograd.grad(y, (x, scale), dy)))
    (y0, dx0, ds0), (y1, dx1, ds1) = results
    assert torch.equal(y0, y1)
    assert torch.equal(dx0, dx1)
    torch.testing.assert_close(ds0, ds1, rtol=1e-5, atol=1e-5)
