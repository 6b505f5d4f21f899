"""The kernels in C give what the formulas give."""

from __future__ import annotations

import shutil
import sysconfig
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic import kernels, native  # noqa: E402
from torch_bridge.arithmetic.kernels import COMPOSED, EAGER  # noqa: E402

SHAPES = [(), (1,), (7,), (5, 9), (3, 4, 5, 2), (64, 4097), (300_001,), (1, 300_001)]


@pytest.fixture
def _built() -> None:
    if native.library() is None:
        pytest.skip("torch_bridge was installed without a compiler")


def tensors(shape: tuple[int, ...], channel: bool) -> tuple[Any, Any, Any]:
    x, dy = torch.randn(shape) * 3, torch.randn(shape)
    size = (shape[0], *[1] * (len(shape) - 1)) if channel else ()
    s = torch.rand(size) + 0.1
    with torch.no_grad():  # ties, borders and zeros of both signs
        flat = x.view(-1)
        flat[::5] = torch.round(flat[::5] * 2) / 2 * s.view(-1)[0]
        flat[::7] = -0.0
    return x, dy, s


def test_a_compiler_means_there_is_a_library() -> None:
    named = sysconfig.get_config_var("CC")
    if not named or shutil.which(named.split()[0]) is None:
        pytest.skip("no compiler")
    assert native.library() is not None, "install again: pip install -e ."


@pytest.mark.usefixtures("_built")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("channel", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("lo", "hi", "z"), [(-8, 7, 0.0), (0, 255, 3.0), (-(2**15), 2**15, 0.0)])
def test_the_formulas(
    shape: tuple[int, ...], channel: bool, lo: int, hi: int, z: float, threads: int
) -> None:
    if channel and not shape:
        pytest.skip("a number has no channels")
    x, dy, s = tensors(shape, channel)
    zero = torch.full(s.shape, z)
    dims = list(range(s.numel() > 1, x.dim()))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert native.takes(s, lo - z, hi - z, x, dy)
        y = native.forward(x, s, lo - z, hi - z)
        dx = torch.empty_like(x)
        ds = native.lsq(dy, x, s, lo - z, hi - z, dx)
        spent = dy.clone()
        again = native.lsq(spent, x, s, lo - z, hi - z, spent)
    finally:
        torch.set_num_threads(before)
    assert y.numpy().tobytes() == COMPOSED.forward(x, s, zero, lo, hi).numpy().tobytes()
    with torch.no_grad():
        want = COMPOSED.lsq(dy, x, s, zero, lo, hi, [])[0]
        exact = COMPOSED.lsq(dy.double(), (x / s).double(), torch.ones(()), zero, lo, hi, [])[1]
    assert torch.equal(dx, want)
    assert torch.equal(spent, want)
    assert torch.equal(again, ds)
    exact, size = (t.sum(dims) if dims else t for t in (exact, exact.abs()))
    assert ds.numel() == s.numel()
    assert torch.all((ds.view(-1) - exact.view(-1)).abs() <= 1e-6 * size.view(-1) + 1e-30)


@pytest.mark.usefixtures("_built")
def test_what_is_not_a_number_shows() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    s, dy = torch.tensor(0.5), torch.ones(4)
    y = native.forward(x, s, -8.0, 7.0)
    assert torch.isnan(y[0])
    assert y[1:].tolist() == [3.5, -4.0, 1.0]
    dx = torch.empty(4)
    assert torch.isnan(native.lsq(dy, x, s, -8.0, 7.0, dx))
    assert dx.tolist() == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.usefixtures("_built")
def test_what_they_do_not_take() -> None:
    x, one, rows = torch.ones(4, 6), torch.ones(()), torch.ones(4, 1)
    assert native.takes(one, -128, 127, x)
    assert native.takes(rows, -128, 127, x)
    assert not native.takes(torch.ones(1, 6), -128, 127, x)  # along the rows
    assert not native.takes(torch.ones(4, 6), -128, 127, x)  # one per element
    assert not native.takes(one, -128, 127, x.t())
    assert not native.takes(one, -128, 127, x, x.t())
    assert not native.takes(one, -(2**31), 2**31 - 1, x)  # biases
    assert not native.takes(one, -128, 127, torch.ones(0, 6))
    assert not native.takes(one, -128, 127, x.double())
    assert not native.takes(one.double(), -128, 127, x)
    assert not native.takes(one, -128, 127, x.to("meta"))


@pytest.mark.parametrize("channel", [False, True])
def test_without_them_the_numbers_are_the_same(
    channel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, dy, s = tensors((300, 500), channel)
    dims = [1] if channel else [0, 1]
    with torch.no_grad():
        y, (dx, ds) = EAGER.forward(x, s, 0.0, -8, 7), EAGER.lsq(dy, x, s, 0.0, -8, 7, dims)
        monkeypatch.setattr(kernels.native, "takes", lambda *_: False)
        other, (dx_, ds_) = EAGER.forward(x, s, 0.0, -8, 7), EAGER.lsq(dy, x, s, 0.0, -8, 7, dims)
    assert y.numpy().tobytes() == other.numpy().tobytes()
    assert torch.equal(dx, dx_)
    torch.testing.assert_close(ds, ds_, rtol=1e-4, atol=1e-3)


def test_a_forked_process_makes_threads_of_its_own() -> None:
    assert native._workers(1) is native._workers(1)
    assert native._workers(1) is not native._workers(2)
