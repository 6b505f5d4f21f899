"""That the implementations agree, and how the eager one keeps its promises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic import functional, kernels  # noqa: E402
from torch_bridge.arithmetic.functional import fake_quantize, lsq  # noqa: E402
from torch_bridge.arithmetic.grid import Grid  # noqa: E402
from torch_bridge.arithmetic.kernels import (  # noqa: E402
    COMPOSED,
    EAGER,
    Kernels,
    kernels_for,
    open_interval,
    tracing,
    uniform,
)


@pytest.fixture(params=["in C", "by torch"])
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by torch":
        monkeypatch.setattr(kernels.native, "takes", lambda *_: False)


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("zero_point", [0.0, 3.0, None])
def test_eager_and_composed_agree_to_the_last_bit(channel: bool, zero_point: float | None) -> None:
    x, dy = torch.randn(30, 50) * 5, torch.randn(30, 50)
    size = (30, 1) if channel else ()
    s = torch.rand(size) + 0.1
    z = torch.randint(-4, 4, size).float() if zero_point is None else torch.full(size, zero_point)
    lo, hi = -8, 7
    y, want = (k.forward(x, s, z, lo, hi) for k in (EAGER, COMPOSED))
    assert y.numpy().tobytes() == want.numpy().tobytes()
    dx, want = (k.ste(dy, x, s, z, lo, hi) for k in (EAGER, COMPOSED))
    assert torch.equal(dx, want)
    with torch.no_grad():
        for dims in ([0, 1], [1], []):
            got, wanted = (k.lsq(dy, x, s, z, lo, hi, dims) for k in (EAGER, COMPOSED))
            assert torch.equal(got[0], wanted[0])
            torch.testing.assert_close(got[1], wanted[1], rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("shape", [(7, 30_011), (3, 5, 17_001), (70_001, 3), (2, 100_003)])
@pytest.mark.parametrize("channel", [False, True])
def test_large_tensors_are_computed_in_pieces(channel: bool, shape: tuple[int, ...]) -> None:
    x, dy = torch.randn(shape) * 5, torch.randn(shape)
    s = torch.rand((shape[0], *[1] * (len(shape) - 1)) if channel else ()) + 0.1
    z, lo, hi = torch.full(s.shape, 3.0), -8, 7
    pieces = kernels._pieces(s, x)
    assert len(pieces) > 1
    assert sum(piece.numel() for _, piece in pieces) == x.numel()
    y, want = (k.forward(x, s, z, lo, hi) for k in (EAGER, COMPOSED))
    assert y.numpy().tobytes() == want.numpy().tobytes()
    dims = list(range(channel, len(shape)))
    with torch.no_grad():
        dx, want = (k.ste(dy, x, s, z, lo, hi) for k in (EAGER, COMPOSED))
        assert torch.equal(dx, want)
        dx, ds = EAGER.lsq(dy, x, s, z, lo, hi, dims)
        want = COMPOSED.lsq(dy, x, s, z, lo, hi, dims)[0]
        exact = COMPOSED.lsq(dy.double(), (x / s).double(), torch.ones(()), z, lo, hi, [])[1]
    assert torch.equal(dx, want)
    assert ds.shape == exact.sum(dims).shape
    assert torch.all((ds - exact.sum(dims)).abs() <= 1e-6 * exact.abs().sum(dims))


def test_pieces_follow_the_scales_in_memory() -> None:
    x = torch.randn(300, 400)
    assert kernels._pieces(torch.ones(1, 400), x) is None  # along the rows
    assert kernels._pieces(torch.ones(300, 1), x.t().contiguous().t()) is None
    assert kernels._pieces(torch.ones(300, 400), x) is None  # one per element
    assert kernels._pieces(torch.ones(()), x[:10]) is None  # one piece is enough
    scales, rows = zip(*kernels._pieces(torch.arange(300.0).view(300, 1), x), strict=True)
    assert torch.equal(torch.cat(rows), x)
    assert [len(s) for s in scales] == [len(r) for r in rows]
    assert torch.equal(torch.cat(scales).flatten(), torch.arange(300.0))


@pytest.mark.parametrize("channel", [False, True])
def test_a_number_serves_as_zero_point(channel: bool) -> None:
    x, dy = torch.randn(6, 5) * 5, torch.randn(6, 5)
    s = torch.rand((6, 1) if channel else ()) + 0.1
    z = torch.full(s.shape, -2.0)
    dims = [1] if channel else [0, 1]
    assert torch.equal(EAGER.forward(x, s, -2.0, -8, 7), EAGER.forward(x, s, z, -8, 7))
    assert torch.equal(EAGER.ste(dy, x, s, -2.0, -8, 7), EAGER.ste(dy, x, s, z, -8, 7))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            got, want = (EAGER.lsq(dy, x, s, given, -8, 7, dims) for given in (-2.0, z))
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])


@pytest.mark.parametrize(
    ("z", "shared"),
    [(torch.tensor(3), 3.0), (torch.zeros(4), 0.0), (torch.full((4,), -2), -2.0), (5.0, 5.0)],
)
def test_the_shared_zero_point(z: Any, shared: float) -> None:
    assert uniform(z) == shared
    assert isinstance(uniform(z), float)


def test_zero_points_that_differ_share_none() -> None:
    assert uniform(torch.tensor([0, 0, 1])) is None


@pytest.mark.parametrize("scale", [2.0**-7, 0.1 / 3, 123.4, 1e-30, 1e-45, 6e37])
def test_the_open_interval_is_the_widest_that_is_in_range(scale: float) -> None:
    s = np.float32(scale)
    low, high = -8, 7
    interval = open_interval(float(s), low, high)
    a, b = (np.float32(v) for v in interval)
    assert (float(a), float(b)) == interval

    def in_range(x: np.float32) -> bool:
        return bool(low <= np.rint(x / s) <= high)

    assert not in_range(a)
    assert not in_range(b)
    assert in_range(np.nextafter(a, np.float32(0)))
    assert in_range(np.nextafter(b, np.float32(0)))


def test_only_what_came_in_is_kept_for_the_backward_pass() -> None:
    x = torch.randn(100, requires_grad=True)
    scale = torch.tensor(0.1, requires_grad=True)
    zero_point = torch.tensor(0, dtype=torch.int32)
    kept: list[Any] = []

    def keep(tensor: Any) -> Any:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        fake_quantize(x, scale, zero_point, Grid(None, -8, 7))
        lsq(x, scale, zero_point, Grid(None, -8, 7), grad_scale=1.0)
    own = {t.data_ptr() for t in (x, scale, zero_point)}
    assert len(kept) == 6
    assert {t.data_ptr() for t in kept} == own


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("shape", [(6, 5), (300, 400)])
@pytest.mark.parametrize("channel", [False, True])
def test_a_gradient_that_is_spent_becomes_that_of_x(shape: tuple[int, int], channel: bool) -> None:
    x, dy = torch.randn(shape) * 5, torch.randn(shape)
    s = torch.rand((shape[0], 1) if channel else ()) + 0.1
    dims = [1] if channel else [0, 1]
    with torch.no_grad():
        want = EAGER.lsq(dy, x, s, 0.0, -8, 7, dims)
        spent = dy.clone()
        dx, ds = EAGER.lsq(spent, x, s, 0.0, -8, 7, dims, True)
        strided = dy.t().contiguous().t()
        kept = EAGER.lsq(strided, x, s, 0.0, -8, 7, dims, True)
    assert dx is spent
    assert torch.equal(dx, want[0])
    assert torch.equal(ds, want[1])
    assert torch.equal(kept[0], want[0])
    assert torch.equal(strided, dy)  # is laid out otherwise, so it was not written over


def test_a_gradient_is_not_spent_unless_that_is_said() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    scale = torch.full((4,), 0.1, requires_grad=True)
    dy = torch.randn(4, 5)
    before = dy.clone()
    zero_point = torch.zeros(4, dtype=torch.int32)
    lsq(x, scale, zero_point, Grid(0, -8, 7), grad_scale=1.0).backward(dy)
    assert torch.equal(dy, before)
    assert not torch.equal(x.grad, dy)


def test_compiled_kernels_get_few_forms() -> None:
    def forms() -> set[tuple[int, ...]]:
        return {
            tuple(t.dim() for t in kernels._flattened(s, torch.zeros_like(s), torch.ones(shape)))
            for shape in [(8,), (8, 1), (8, 4), (8, 4, 3), (8, 4, 1, 1), (8, 1, 3, 3, 2)]
            for s in (torch.ones(()), torch.ones(8, *[1] * (len(shape) - 1)))
        }

    with torch.no_grad():
        assert forms() == {(1, 0, 0), (2, 2, 2)}
    assert len(forms()) == 10  # a second derivative sees the tensors as they are


def test_what_is_not_laid_out_in_rows_is_compiled_as_it_is() -> None:
    x = torch.ones(6, 4, 3)
    with torch.no_grad():
        for s, z, t in (
            (torch.ones(1, 4, 1), torch.zeros(1, 4, 1), x),  # channels in the middle
            (torch.ones(6, 1, 1), torch.zeros(()), x),
            (torch.ones(()), torch.zeros(()), x.transpose(0, 2)),
        ):
            assert [u.shape for u in kernels._flattened(s, z, t)] == [t.shape, s.shape, z.shape]


def test_kernels_that_are_compiled_get_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    # They would be compiled once for parameters and once for tensors, and so reach torch's limit.
    seen: list[Any] = []

    def watched(kernel: Any) -> Any:
        def run(*arguments: Any) -> Any:
            seen.extend(a for a in arguments if isinstance(a, torch.Tensor))
            return kernel(*arguments)

        return run

    monkeypatch.setattr(
        functional, "kernels_for", lambda x: Kernels(*(watched(kernel) for kernel in COMPOSED))
    )
    x = torch.nn.Parameter(torch.randn(3, 4))
    scale = torch.nn.Parameter(torch.rand(3) + 0.1)
    zero_point = torch.zeros(3, dtype=torch.int32)
    for function, more in ((fake_quantize, {}), (lsq, {"grad_scale": 1.0})):
        function(x, scale, zero_point, Grid(0, -8, 7), **more).sum().backward()
    assert len(seen) == 3 + 4 + 3 + 4
    assert not any(isinstance(t, torch.nn.Parameter) or t.requires_grad for t in seen)


@pytest.mark.parametrize("first", [EAGER, COMPOSED])
def test_kernels_may_change_between_the_passes(
    first: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = COMPOSED if first is EAGER else EAGER
    for function, more in ((fake_quantize, {}), (lsq, {"grad_scale": 1.0})):
        gradients = []
        for second in (first, other):
            x = torch.linspace(-2, 2, 12).view(3, 4).requires_grad_()
            scale = torch.full((3,), 0.125, requires_grad=True)
            monkeypatch.setattr(functional, "kernels_for", lambda x: first)
            zero_point = torch.full((3,), 2)
            y = function(x, scale, zero_point, Grid(0, -8, 7), **more)
            monkeypatch.setattr(functional, "kernels_for", lambda x, second=second: second)
            y.sum().backward()
            gradients.append((x.grad, scale.grad))
        assert torch.equal(gradients[0][0], gradients[1][0])
        if function is lsq:
            torch.testing.assert_close(gradients[0][1], gradients[1][1])


def test_recording_is_noticed() -> None:
    noticed = []

    def record(x: Any) -> Any:
        noticed.append(tracing())
        return x + 1

    torch.jit.trace(record, torch.ones(2), check_trace=False)
    assert noticed == [True]
    assert not tracing()


def test_the_eager_kernels_are_for_float32_on_the_cpu() -> None:
    assert not tracing()
    assert kernels_for(torch.ones(1)) is EAGER
    assert kernels_for(torch.ones(1, dtype=torch.float64)) is COMPOSED
    assert kernels_for(torch.ones(1, device="meta")) is COMPOSED


def test_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Kernels(*COMPOSED)._replace(ste=None)
    monkeypatch.setattr(kernels, "_compile", lambda: made)
    monkeypatch.setattr(kernels, "_asked", True)
    large = torch.ones(kernels._WORTH_COMPILING)
    monkeypatch.setattr(kernels.native, "library", lambda: None)
    assert kernels_for(large) is made
    assert kernels_for(large[:-1]) is EAGER  # calling it would take longer
    assert kernels_for(torch.ones(1, dtype=torch.float64)) is made
    monkeypatch.setattr(kernels.native, "library", object)
    assert kernels_for(large) is EAGER  # faster still


@pytest.mark.parametrize(
    ("asked", "triton", "expected"),
    [(None, True, True), (None, False, False), (False, True, False), (True, False, True)],
)
def test_kernels_are_compiled_on_cuda_by_default(
    asked: bool | None, triton: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Kernels(*COMPOSED)._replace(ste=None)
    monkeypatch.setattr(kernels, "_compile", lambda: made)
    monkeypatch.setattr(kernels, "_has_triton", lambda device: triton)
    kernels.compile_kernels(asked)
    on_cuda: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)
    try:
        assert kernels_for(on_cuda) is (made if expected else COMPOSED)
        assert kernels_for(torch.ones(1)) is EAGER
    finally:
        kernels.compile_kernels(None)
