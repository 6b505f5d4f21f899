r"""GPTQ: weights rounded one input after the other, each making up for the errors before it.

A layer computes y = x W, with rows x from the data. Rounding W to W_q costs, for each column w,

    |X (w - w_q)|^2 = (w - w_q)^T H (w - w_q),     H = X^T X

which the nearest values minimise only if inputs are uncorrelated. So the elements of w are rounded
in turn, and after each the best values of those that are left are computed (Frantar et al., 2022).
With H = M M^T, M upper triangular, and U = M^-1 that is

    e = (w_j - w_q,j) / U_jj,     w_k <- w_k - e U_jk     for k > j

All columns of W share H, and so U. The inputs with most energy come first, while most of the others
are left to make up for them. A hundredth of the average energy is added to the diagonal: errors are
not moved where little data says that they do not matter. Columns that end up worse than rounded to
the nearest values (few do) are rounded so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.quant.qparams import Array

DAMPING = 0.01
"""Share of the average energy of an input that is added to each."""
BLOCK = 128
"""Inputs whose errors are collected before all later ones are updated, in one product."""


@dataclass(frozen=True)
class Grid:
    """The grid of each element of a weight: values (code - zero) * scale, codes lo..hi."""

    scale: Array
    zero: Array
    lo: int
    hi: int

    def codes(self, values: Array) -> Array:
        """The nearest codes, as float64."""
        return np.asarray(np.clip(np.rint(values / self.scale) + self.zero, self.lo, self.hi))

    def values(self, codes: Array) -> Array:
        """The values of codes."""
        return np.asarray((codes - self.zero) * self.scale)

    def ordered(self, order: Array) -> Grid:
        """The grid of inputs in another order."""
        return Grid(_taken(self.scale, order), _taken(self.zero, order), self.lo, self.hi)

    def at(self, row: int) -> Grid:
        """The grid of input number `row`."""
        return Grid(self.scale[:, row], self.zero[:, row], self.lo, self.hi)


def gptq_codes(weight: Array, grid: Grid, products: Array) -> Array:
    """The codes of `weight`, of shape (groups, inputs, outputs), rounded for its inputs.

    `products` is X^T X of each group, of shape (groups, inputs, inputs). The arrays of `grid` have
    the shape of the weight.
    """
    weight, products = weight.astype(np.float64), products.astype(np.float64)
    order = np.argsort(-np.diagonal(products, axis1=1, axis2=2), axis=1, kind="stable")
    sorted_products = np.take_along_axis(_taken(products, order), order[:, None, :], axis=2)
    codes = _in_turn(_taken(weight, order), grid.ordered(order), _factor(sorted_products))
    codes = _taken(codes, np.argsort(order, axis=1))
    nearest = grid.codes(weight)
    worse = _costs(grid.values(nearest) - weight, products) <= _costs(
        grid.values(codes) - weight, products
    )
    return np.where(worse[:, None, :], nearest, codes).astype(np.int64)


def _in_turn(weight: Array, grid: Grid, factor: Array) -> Array:
    """The codes of `weight`, which is changed, for U = `factor`."""
    groups, inputs, outputs = weight.shape
    codes = np.empty_like(weight)
    for start in range(0, inputs, BLOCK):
        end = min(start + BLOCK, inputs)
        errors = np.empty((groups, end - start, outputs))
        for row in range(start, end):
            now, own = weight[:, row], grid.at(row)
            codes[:, row] = own.codes(now)
            error = (now - own.values(codes[:, row])) / factor[:, row, row, None]
            errors[:, row - start] = error
            weight[:, row + 1 : end] -= factor[:, row, row + 1 : end, None] * error[:, None]
        weight[:, end:] -= factor[:, start:end, end:].transpose(0, 2, 1) @ errors
    return codes


def _factor(products: Array) -> Array:
    """U of each group, for H with the damping added."""
    damped = products.copy()
    inputs = np.arange(damped.shape[1])
    energy = damped[:, inputs, inputs]
    extra = DAMPING * energy.mean(axis=1, keepdims=True)
    damped[:, inputs, inputs] += np.where(extra > 0, extra, 1.0)
    # The Cholesky factor of H with its axes reversed, reversed again, is the upper triangular M.
    upper = np.linalg.cholesky(damped[:, ::-1, ::-1])[:, ::-1, ::-1]
    return np.triu(np.linalg.inv(upper))


def _costs(errors: Array, products: Array) -> Array:
    """e^T H e of each output."""
    return np.asarray((errors * (products @ errors)).sum(axis=1))


def _taken(values: Array, order: Array) -> Array:
    """Inputs in the order of each group."""
    return np.take_along_axis(values, order[:, :, None], axis=1)


__all__ = ["Grid", "gptq_codes"]
