"""Least squares with coefficients that are not negative: Lawson and Hanson, Solving Least Squares Problems, ch. 23."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def nnls(a: Floats, b: Floats) -> Floats:
    """x >= 0 of the least |a x - b|. a: [rows, columns], b: [rows]. Deterministic."""
    scale = np.linalg.norm(a, axis=0)
    scale[scale == 0.0] = 1.0
    a = a / scale
    columns = a.shape[1]
    x, free = np.zeros(columns), np.zeros(columns, bool)
    tolerance = 1e-10 * np.abs(a.T @ b).max(initial=1.0)
    for _ in range(10 * columns):
        gradient = np.where(free, -np.inf, a.T @ (b - a @ x))
        if gradient.max(initial=-np.inf) <= tolerance:
            break
        free[int(gradient.argmax())] = True
        x = _solve_free(a, b, x, free)
    return x / scale


def _solve_free(a: Floats, b: Floats, x: Floats, free: npt.NDArray[np.bool_]) -> Floats:
    """The least squares of the free columns; those that would turn negative are bound to 0 again, one after another."""
    while True:
        target = np.zeros_like(x)
        target[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
        blocked = free & (target <= 0.0)
        if not blocked.any():
            return target
        step = (x[blocked] / np.maximum(x[blocked] - target[blocked], 1e-300)).min()
        x = x + step * (target - x)
        free &= x > 1e-15
        x = np.where(free, x, 0.0)
