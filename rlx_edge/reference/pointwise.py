"""What the elementwise kinds of ir/ops/pointwise.py mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, DType, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.pointwise import Fma, GatedResidual, StopGradient
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]


def stop_gradient(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    return x[0]


def fma(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """float32 (or float16) in and out, rounded once: float64 holds every product, and the sum is rounded to odd."""
    if out.dtype is DType.F64:
        raise UnsupportedError("the reference has no Fma on f64: nothing wider holds its products")
    with np.errstate(all="ignore"):
        product = x[0].astype(np.float64) * x[1]
        return _sum_to_odd(product, x[2].astype(np.float64)).astype(x[0].dtype)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """The float64 sum; where it is not exact, of the two neighbors that enclose it the one with an odd last bit.

    Rounding that to a format with at least two bits less is rounding the exact sum: Boldo and Melquiond, "Emulation of
    FMA and correctly rounded sums", 2008. The error of the nearest sum is Knuth's, and exact.
    """
    nearest = np.asarray(a + b)
    second = nearest - a
    error = (a - (nearest - second)) + (b - second)
    even = (nearest.view(np.int64) & 1) == 0
    moved = np.nextafter(nearest, np.where(error > 0, np.inf, -np.inf))
    return np.where(even & np.isfinite(error) & (error != 0), moved, nearest)


def gated_residual(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """In float64, rounded once."""
    with np.errstate(all="ignore"):
        first, second, gate = (value.astype(np.float64) for value in x)
        return np.asarray(first + gate * second).astype(out.dtype.numpy)


FUNCTIONS: dict[type[Op], OpFunction] = {
    StopGradient: stop_gradient,
    Fma: fma,
    GatedResidual: gated_residual,
}

ON_CODES: dict[type[Op], OpFunction] = {StopGradient: stop_gradient}
