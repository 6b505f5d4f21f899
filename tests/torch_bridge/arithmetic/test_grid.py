from __future__ import annotations

import pytest

from onnxq.errors import QParamsError

torch = pytest.importorskip("torch", reason="training needs torch")

from torch_bridge.arithmetic.grid import Grid, working_type  # noqa: E402


@pytest.mark.parametrize(
    ("lo", "hi", "stored"),
    [
        (-128, 127, torch.int8),
        (-2, 1, torch.int8),
        (-129, 0, torch.int16),
        (-8, 255, torch.int16),
        (0, 255, torch.uint8),
        (0, 256, torch.uint16),
    ],
)
def test_the_narrowest_type_stores_the_zero_point(lo: int, hi: int, stored: object) -> None:
    assert Grid(None, lo, hi).stored_type() == stored


def test_a_given_type_wins() -> None:
    assert Grid(None, 0, 127, stored=torch.int8).stored_type() == torch.int8


def test_attributes_name_only_what_applies() -> None:
    assert Grid(None, 0, 3).attributes() == {"quant_min": 0, "quant_max": 3}
    assert Grid(1, 0, 3, 8).attributes() == {
        "quant_min": 0,
        "quant_max": 3,
        "axis": 1,
        "block_size": 8,
    }


@pytest.mark.parametrize(
    ("grid", "shape"),
    [
        (Grid(None, 0, 3), ()),
        (Grid(None, 0, 3), (1,)),
        (Grid(1, 0, 3), (5,)),
        (Grid(-2, 0, 3), (5,)),
        (Grid(1, 0, 3, 2), (4, 3, 6)),  # the last block is half full
    ],
)
def test_gather_is_spread_reversed(grid: Grid, shape: tuple[int, ...]) -> None:
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    values = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    spread = grid.spread(values, x)
    assert torch.broadcast_shapes(spread.shape, x.shape) == x.shape
    (want,) = torch.autograd.grad((spread * x).sum(), values)
    torch.testing.assert_close(grid.gather(x, values), want)


def test_one_scale_for_each_element_of_a_vector() -> None:
    terms = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(Grid(0, -8, 7).gather(terms, torch.ones(3)), terms)


def test_a_mismatch_names_both_shapes() -> None:
    with pytest.raises(QParamsError, match=r"do not match a tensor of shape \[4, 5\].*axis 1"):
        Grid(1, 0, 3).spread(torch.ones(3), torch.ones(4, 5))


def test_narrow_floats_are_widened() -> None:
    assert working_type(torch.ones(1, dtype=torch.bfloat16)) == torch.float32
    assert working_type(torch.ones(1)) == torch.float32
    assert working_type(torch.ones(1, dtype=torch.float64)) == torch.float64
