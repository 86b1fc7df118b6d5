"""What the kinds of ir/ops/spectral.py mean: floats are computed in float64, the result rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, DType, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.spectral import Fft, FftButterflyStage, FftNorm, FftQ, FftQScale, LogMel, WelchPeaks
from rlx_edge.reference.further import OpFunction

Types = Sequence[TensorType]
FRACTION = 30
"""Fractional bits of a fixed-point factor: 1 itself must fit in int32."""
FLOOR = 1e-10
"""Whisper's smallest power."""
RANGE = 8.0
"""How far below the largest value Whisper's spectrogram goes, in powers of ten."""


def fft(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Fft)
    blocks = out.dtype is not DType.C64
    values = x[0].astype(np.complex128) if not blocks else _complex(x[0])
    result = np.fft.ifft(values, norm="forward") if op.inverse else np.fft.fft(values)  # Neither has a factor.
    if op.norm is FftNorm.ORTHO:
        result /= math.sqrt(result.shape[-1])
    elif op.norm is FftNorm.FORWARD and op.inverse:
        result /= result.shape[-1]
    if blocks:
        result = np.concatenate([result.real, result.imag], axis=-1)
    return result.astype(out.dtype.numpy)


def _complex(x: Array) -> Array:
    re, im = np.split(x.astype(np.float64), 2, axis=-1)
    return np.asarray(re + 1j * im)


def fft_q(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FftQ)
    size = out.shape[-1] // 2
    stages = size.bit_length() - 1
    order = [int(f"{place:0{stages}b}"[::-1], 2) if stages else 0 for place in range(size)]
    re, im = (part[..., order].astype(np.int64) for part in np.split(x[0], 2, axis=-1))
    for stage in range(stages):
        a, b = _pairs(stage, size)
        angles = (2 if op.inverse else -2) * np.pi * (a % 2**stage) / 2 ** (stage + 1)
        w_re, w_im = (np.rint(part * 2**FRACTION).astype(np.int64) for part in (np.cos(angles), np.sin(angles)))
        t_re = _shifted(_product(w_re, re[..., b], -w_im, im[..., b]), FRACTION)
        t_im = _shifted(_product(w_re, im[..., b], w_im, re[..., b]), FRACTION)
        halve = int(op.scale is FftQScale.PER_STAGE)
        for part, t in ((re, t_re), (im, t_im)):
            first, second = part[..., a] + t, part[..., a] - t
            part[..., a], part[..., b] = (_saturated(_shifted(total, halve)) for total in (first, second))
    return np.concatenate([_normed(op, part, stages) for part in (re, im)], axis=-1).astype(np.int32)


def _product(w: Array, x: Array, v: Array, y: Array) -> Array:
    """w x + v y: |w| and |v| are at most 2^30, |x| and |y| at most 2^31, so that it lies within int64."""
    return np.asarray(w * x + v * y)


def _shifted(x: Array, bits: int) -> Array:
    """x / 2^bits to the nearest, ties up."""
    return np.asarray((x + (1 << bits >> 1)) >> bits)


def _saturated(x: Array) -> Array:
    return np.clip(x, -(1 << 31), (1 << 31) - 1)


def _normed(op: FftQ, part: Array, stages: int) -> Array:
    if op.norm is FftNorm.ORTHO:
        return _shifted(part * round(2**FRACTION / math.sqrt(2**stages)), FRACTION)
    return _shifted(part, stages if op.inverse and op.norm is FftNorm.FORWARD else 0)


def _pairs(stage: int, size: int) -> tuple[Array, Array]:
    """Places of a and b of each butterfly of a stage."""
    butterflies, apart = np.arange(size // 2), 2**stage
    a = 2 * apart * (butterflies // apart) + butterflies % apart
    return a, a + apart


def butterfly_stage(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, FftButterflyStage)
    state, gate, rev, tw_re, tw_im = x
    runs = gate >= 0.5
    a, b = (places[runs] for places in _pairs(op.stage, op.n_fft))
    factors = (tw_re.astype(np.float64) + 1j * tw_im)[runs] * np.where(rev[runs] >= 0.5, -1, 1)
    values = state[..., 0].astype(np.float64) + 1j * state[..., 1]
    result = state.copy()
    for places, sign in ((a, 1), (b, -1)):
        total = values[:, a] + sign * factors * values[:, b]
        result[:, places, 0], result[:, places, 1] = total.real, total.imag
    return result


def _powers(spectrum: Array) -> Array:
    """re^2 + im^2 of bins 0 to n_fft / 2."""
    re, im = np.split(spectrum.astype(np.float64), 2, axis=-1)
    return np.asarray(re**2 + im**2)[..., : re.shape[-1] // 2 + 1]


def log_mel(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, LogMel)
    mels = np.log10(np.maximum(_powers(x[0]) @ x[1].astype(np.float64).T, FLOOR))
    top = mels.max(axis=tuple(range(mels.ndim))[-2:], keepdims=True)
    return np.asarray((np.maximum(mels, top - RANGE) + 4) / 4).astype(out.dtype.numpy)


def welch_peaks(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, WelchPeaks)
    powers = _powers(x[0])
    density = powers.reshape(out.shape[0], op.n_segments, -1).mean(axis=1)
    bins = np.argsort(-density, axis=1, kind="stable")[:, : op.k]
    peaks = np.stack([bins, np.take_along_axis(density, bins, axis=1)], axis=-1)
    return peaks.reshape(out.shape).astype(out.dtype.numpy)


FUNCTIONS: dict[type[Op], OpFunction] = {
    Fft: fft,
    FftQ: fft_q,
    FftButterflyStage: butterfly_stage,
    LogMel: log_mel,
    WelchPeaks: welch_peaks,
}
