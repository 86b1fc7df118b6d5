"""Fourier transforms along the last axis, and what is read from spectra.

A spectrum of real numbers is in blocks: the last axis of 2 N holds N real parts, then N imaginary parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Op, exact
from rlx_edge.ir.ops.checks import require, require_floats, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class FftNorm(Enum):
    """The factor of a transform of N elements; the values are the vocabulary's names, and not what numpy means."""

    BACKWARD = "Backward"
    """1, of the inverse too."""
    FORWARD = "Forward"
    """1, and 1 / N of the inverse."""
    ORTHO = "Ortho"
    """1 / sqrt(N)."""


class FftQScale(Enum):
    """How a fixed-point transform stays in range. Ours: the vocabulary names the type, but not its members."""

    NONE = "None"
    """Sums keep their size; those that leave int32 are saturated."""
    PER_STAGE = "PerStage"
    """Each of the log2(N) stages halves its sums: the value is 1 / N of what the norm says. No sum of elements
    whose magnitude is below 2^30 is saturated."""


@dataclass(frozen=True)
class Fft(Op):
    """sum over n of x[n] exp(-2 pi i n k / N), of an inverse exp(+2 pi i n k / N), times the norm's factor.

    f32 and f64 are in blocks; c64 is a complex number an element.
    """

    text: ClassVar[str] = "fft(inverse={inverse}, norm={norm:?})"
    inverse: bool
    norm: FftNorm = FftNorm.BACKWARD

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (x,) = operands
        known = x.dtype in (DType.F32, DType.F64, DType.C64)
        require(known, f"a transform of {x.dtype.value}; f32, f64 or c64 is needed")
        require(bool(x.shape) and x.shape[-1] > 0, f"x is {x}; a last axis of elements is needed")
        if x.dtype is not DType.C64:
            block_size(x)
        return x.shape, x.dtype


@dataclass(frozen=True)
class FftQ(Op):
    """The transform of int32 in blocks, N a power of two, in fixed point.

    Ours: radix 2, decimation in time; factors are rounded to 30 fractional bits, products, halves and the norm's factor
    to the nearest, ties up; sums are saturated to int32. The norm's factor comes last.
    """

    text: ClassVar[str] = "fft_q(inverse={inverse}, norm={norm:?}, scale={scale:?})"
    inverse: bool
    norm: FftNorm
    scale: FftQScale

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (x,) = operands
        require(x.dtype is DType.I32, f"a fixed-point transform of {x.dtype.value}; i32 is needed")
        require_power_of_two(block_size(x))
        return x.shape, x.dtype


@dataclass(frozen=True)
class FftButterflyStage(Op):
    """Operands state [B, n_fft, 2] (real and imaginary parts), gate, rev, tw_re, tw_im, each of n_fft / 2 butterflies.

    Where gate is 1, (a, b) becomes (a + w b, a - w b), where rev is 1 too, (a - w b, a + w b); where gate is 0, it
    stays. Ours: with m = 2^stage, butterfly j has a at 2 m (j // m) + j % m and b m places on, as stages have it that
    follow each other from 0 on, on elements in bit-reversed order; gate and rev count as 1 from 0.5 on.
    """

    operand_count: ClassVar[Arity] = exact(5)
    text: ClassVar[str] = "fft_butterfly_stage(stage={stage}, n_fft={n_fft})"
    stage: int
    n_fft: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        state, *tables = operands
        require_power_of_two(self.n_fft)
        stages = self.n_fft.bit_length() - 1
        require(0 <= self.stage < stages, f"stage {self.stage} of the {stages} of {self.n_fft} elements")
        batch = require_rank("state", state, 3)[0]
        require_shape("state", state, (batch, self.n_fft, 2))
        for name, table in zip(("gate", "rev", "tw_re", "tw_im"), tables, strict=True):
            require_shape(name, table, (self.n_fft // 2,))
        return state.shape, require_floats(operands)


@dataclass(frozen=True)
class LogMel(Op):
    """Operands spectrum [.., 2 n_fft] in blocks, filters [n_mels, n_fft / 2 + 1]: Whisper's log-mel spectrogram.

    y = log10(max(filters (re^2 + im^2), 1e-10)), then (max(y, top - 8) + 4) / 4, [.., n_mels]. Ours: top is the largest
    y of the last two axes, so that samples of a batch do not change each other.
    """

    operand_count: ClassVar[Arity] = exact(2)
    text: ClassVar[str] = "log_mel()"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        spectrum, filters = operands
        mels = require_rank("filters", filters, 2)[0]
        require_shape("filters", filters, (mels, block_size(spectrum) // 2 + 1))
        require(mels > 0, f"filters are {filters}; at least one is needed")
        return (*spectrum.shape[:-1], mels), require_floats(operands)


@dataclass(frozen=True)
class WelchPeaks(Op):
    """Spectra [B * n_segments, 2 n_fft] in blocks: the k largest powers of each B, [B, 2 k], as bin, power, bin, ..

    Ours: a power is the mean of re^2 + im^2 of the segments at one of the bins 0 to n_fft / 2; the largest is first, of
    equal ones the lower bin. Any bin counts, a local maximum or not.
    """

    text: ClassVar[str] = "welch_peaks(k={k}, n_segments={n_segments})"
    k: int
    n_segments: int

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        (spectra,) = operands
        rows = require_rank("spectra", spectra, 2)[0]
        whole = self.n_segments >= 1 and rows % self.n_segments == 0
        require(whole, f"spectra are {spectra}; a multiple of {self.n_segments} rows is needed")
        bins = block_size(spectra) // 2 + 1
        require(1 <= self.k <= bins, f"{self.k} peaks of {bins} bins")
        return (rows // self.n_segments, 2 * self.k), require_floats(operands)


def block_size(x: TensorType) -> int:
    """N of a tensor [.., 2 N] in blocks. Raises ShapeError."""
    fits = bool(x.shape) and x.shape[-1] > 0 and x.shape[-1] % 2 == 0
    require(fits, f"a spectrum {x}; a last axis of real parts, then as many imaginary ones, is needed")
    return x.shape[-1] // 2


def require_power_of_two(size: int) -> None:
    require(size >= 1 and size & (size - 1) == 0, f"a transform of {size} elements; a power of two is needed")


KINDS: tuple[type[Op], ...] = (Fft, FftQ, FftButterflyStage, LogMel, WelchPeaks)
