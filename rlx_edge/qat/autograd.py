"""The IR's fake quantization as PyTorch functions: forward and backward are those of `reference/fake_quant.py`.

`quantize_affine` is ours: the int8 of activations has a zero point, which FakeQuantize does not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from rlx_edge.ir.ops import EMA, FakeQuantize, FakeQuantizeLSQ, Fixed, SteKind
from rlx_edge.ir.ops.fake_quant import SMALLEST_SCALE, FakeQuant, largest


def round_half_away(x: Tensor) -> Tensor:
    """Round to the nearest integer, ties away from zero.

    The largest number below a half is added, not a half: that is right for every float, also for that number itself.
    """
    below_half = math.nextafter(0.5, 0) if x.dtype is torch.float64 else 0.5 - 2.0**-25
    return torch.copysign(torch.floor_(torch.abs(x).add_(below_half)), x)


def fake_quantize(x: Tensor, op: FakeQuantize, state: Tensor | None = None) -> Tensor:
    """The op on x. With EMA, `state` [channels] is updated in place, as a training step does; else it is only read."""
    with torch.no_grad():
        now = _batch_scales(op, x)
        scales = now
        if isinstance(op.scale_mode, Fixed):
            assert state is not None
            scales = state.clamp_min(SMALLEST_SCALE)
        elif isinstance(op.scale_mode, EMA):
            assert state is not None
            decay = torch.tensor(op.scale_mode.decay, dtype=x.dtype)
            scales = torch.where(state <= 0, now, decay * state + (1 - decay) * now)
            state.copy_(scales)
    return _FakeQuantize.apply(x, scales, now, op)


def lsq(x: Tensor, scale: Tensor, op: FakeQuantizeLSQ) -> Tensor:
    """The op on x and its learned scale [channels]; both get gradients."""
    return _Lsq.apply(x, scale, op)


def quantize_affine(
    x: Tensor, scale: float, zero_point: int, shift: Tensor | float = 0.0, codes_tie: bool = False
) -> Tensor:
    """What int8 at these parameters holds of x; the gradient passes where that is within int8's range.

    Ties go away from zero, by default of x, as a layer's do; with `codes_tie` of the code, as a mean pool's do. Where
    `shift` is above 0, x / scale is rounded to multiples of 2^-shift first, ties up, as the rule tflm does.
    """
    return _Affine.apply(x, scale, zero_point, shift, zero_point if codes_tie else 0)


def straight(x: Tensor) -> Tensor:
    """Rounded to integers; the gradient passes as it is."""
    return _Straight.apply(x)


class _FakeQuantize(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scales: Tensor, now: Tensor, op: FakeQuantize) -> Tensor:
        ctx.save_for_backward(x, now)
        ctx.op = op
        return _rounded(op, x, scales)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, now = ctx.saved_tensors
        return dy * _passed(ctx.op.ste, x, _along(ctx.op, x, now), largest(ctx.op.bits)), None, None, None


class _Lsq(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, op: FakeQuantizeLSQ) -> Tensor:
        ctx.save_for_backward(x, scale)
        ctx.op = op
        return _rounded(op, x, scale)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors
        steps, most = x / _along(ctx.op, x, scale), largest(ctx.op.bits)
        inside = steps.abs() <= most
        slope = torch.where(inside, round_half_away(steps) - steps, torch.sign(steps) * most)
        return torch.where(inside, dy, 0), _channel_sums(ctx.op, slope * dy), None


class _Affine(Function):
    """Written with few passes over memory: rounding activations takes as long as the layers themselves."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float, zero_point: int, shift: Tensor | float, offset: int) -> Tensor:
        steps = x / scale
        if isinstance(shift, Tensor) or shift > 0:
            finer = 2.0**shift
            steps = steps.mul_(finer).add_(0.5).floor_().div_(finer)
        codes = round_half_away(steps.add_(offset) if offset else steps)
        bounded = codes.clamp(-128 - zero_point + offset, 127 - zero_point + offset)
        ctx.save_for_backward(codes.sub_(bounded))
        return bounded.sub_(offset).mul_(scale) if offset else bounded.mul_(scale)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (clipped,) = ctx.saved_tensors  # In whole codes: 0 where nothing was clipped.
        return dy * (1 - clipped.abs().clamp_(max=1)), None, None, None, None


class _Straight(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return round_half_away(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy


def _passed(ste: SteKind, x: Tensor, scale: Tensor, most: int) -> Tensor | float:
    """The share of the gradient that an estimator lets through to each element of x."""
    if ste is SteKind.IDENTITY:
        return 1.0
    if ste is SteKind.TANH:
        return 1 - torch.tanh(x / scale) ** 2
    bound = most * scale
    if ste is SteKind.CLIPPED_IDENTITY:
        return (x.abs() <= bound).to(x.dtype)
    return (1 - (x / bound).abs()).clamp_min(0)


def _batch_scales(op: FakeQuant, x: Tensor) -> Tensor:
    others = [i for i in range(x.ndim) if op.axis is None or i != op.axis % x.ndim]
    most = x.abs().amax(dim=others) if others else x.abs()
    return (most.reshape(-1) / largest(op.bits)).clamp_min(SMALLEST_SCALE)


def _along(op: FakeQuant, x: Tensor, scales: Tensor) -> Tensor:
    shape = [1] * x.ndim
    if op.axis is not None:
        shape[op.axis] = -1
    return scales.clamp_min(SMALLEST_SCALE).reshape(shape)


def _rounded(op: FakeQuant, x: Tensor, scales: Tensor) -> Tensor:
    most, wide = largest(op.bits), _along(op, x, scales)
    return round_half_away(x / wide).clamp(-most, most) * wide


def _channel_sums(op: FakeQuant, values: Tensor) -> Tensor:
    if op.axis is None:
        return values.sum().reshape(1)
    return values.sum(dim=[i for i in range(values.ndim) if i != op.axis % values.ndim]) if values.ndim > 1 else values
