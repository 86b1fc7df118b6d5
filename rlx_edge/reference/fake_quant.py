"""What fake quantization and its gradients mean. Divisions are made in the dtype of x, float32, as `quantize_f32` does.

Sums over a channel are made in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import (
    EMA,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Fixed,
    Op,
    SteKind,
)
from rlx_edge.ir.ops.fake_quant import SMALLEST_SCALE, FakeQuant, largest
from rlx_edge.reference.fixedpoint import round_half_away

Types = Sequence[TensorType]


def batch_scales(op: FakeQuant, x: Array) -> Array:
    """max|x| / largest magnitude of each channel, [channels]."""
    others = tuple(i for i in range(x.ndim) if op.axis is None or i != op.axis % x.ndim)
    most = np.abs(x).max(axis=others).reshape(-1) / x.dtype.type(largest(op.bits))
    return np.asarray(np.maximum(most, x.dtype.type(SMALLEST_SCALE)))


def scales_of(op: FakeQuantize, x: Array, state: Array | None = None) -> Array:
    """The scales [channels] that the op rounds at; with EMA these are also the state's next values."""
    if isinstance(op.scale_mode, Fixed):
        assert state is not None
        return np.asarray(np.maximum(state, state.dtype.type(SMALLEST_SCALE)))
    now = batch_scales(op, x)
    if not isinstance(op.scale_mode, EMA):
        return now
    assert state is not None
    decay = x.dtype.type(op.scale_mode.decay)
    return np.where(state <= 0, now, decay * state + (1 - decay) * now)


def fake_quantize(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    """The state of EMA is not written here, as a node has one result: `scales_of` gives its next values."""
    assert isinstance(op, FakeQuantize)
    return _rounded(op, x[0], scales_of(op, *x))


def fake_quantize_backward(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FakeQuantizeBackward)
    return np.asarray(x[1] * passed(op.ste, x[0], along(op, x[0], batch_scales(op, x[0])), largest(op.bits)))


def passed(ste: SteKind, x: Array, scale: Array, most: int) -> Array:
    """The share of the gradient that an estimator lets through to each element of x; `scale` broadcasts against x."""
    if ste is SteKind.IDENTITY:
        return np.ones_like(x)
    if ste is SteKind.TANH:
        return np.asarray(1 - np.tanh(x / scale) ** 2)
    bound = x.dtype.type(most) * scale
    if ste is SteKind.CLIPPED_IDENTITY:
        return np.asarray(np.abs(x) <= bound).astype(x.dtype)
    return np.asarray(np.maximum(1 - np.abs(x / bound), 0))


def lsq(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FakeQuantizeLSQ)
    return _rounded(op, x[0], x[1])


def lsq_backward_x(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FakeQuantizeLSQBackwardX)
    return np.where(np.abs(_steps(op, x[0], x[1])) <= largest(op.bits), x[2], x[2].dtype.type(0))


def lsq_backward_scale(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FakeQuantizeLSQBackwardScale)
    steps, most = _steps(op, x[0], x[1]), largest(op.bits)
    slope = np.where(np.abs(steps) <= most, round_half_away(steps) - steps, np.copysign(most, steps))
    products = slope.astype(np.float64) * x[2]
    if op.axis is None:
        return np.asarray(products.sum()).reshape(1).astype(x[1].dtype)
    rows = np.moveaxis(products, op.axis, 0).reshape(len(x[1]), -1)
    return np.asarray(rows.sum(axis=1).astype(x[1].dtype))


def along(op: FakeQuant, x: Array, scales: Array) -> Array:
    """Scales [channels], at least SMALLEST_SCALE, shaped so that they broadcast against x."""
    shape = [1] * x.ndim
    if op.axis is not None:
        shape[op.axis] = -1
    return np.asarray(np.maximum(scales, scales.dtype.type(SMALLEST_SCALE))).reshape(shape)


def _steps(op: FakeQuant, x: Array, scales: Array) -> Array:
    return np.asarray(x / along(op, x, scales))


def _rounded(op: FakeQuant, x: Array, scales: Array) -> Array:
    most = largest(op.bits)
    return np.asarray(np.clip(round_half_away(_steps(op, x, scales)), -most, most) * along(op, x, scales))
