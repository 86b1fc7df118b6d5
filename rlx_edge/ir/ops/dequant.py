"""The matrix product of float activations with weights that are stored as integers in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, ShapeError
from rlx_edge.ir.ops.checks import require, require_rank, require_shape
from rlx_edge.ir.tensor import Shape, TensorType


class SchemeKind(Enum):
    """How weights are stored. Declared only are 4-bit floats (two ways), K-quants of GGUF, whose scales lie among the
    codes, and the affine groups of MLX; that last one's name is ours."""

    INT8_BLOCK = "Int8Block"
    INT8_BLOCK_ASYM = "Int8BlockAsym"
    INT4_BLOCK = "Int4Block"
    NVFP4_BLOCK = "Nvfp4Block"
    MXFP4X2 = "Mxfp4x2"
    GGUF = "Gguf"
    MLX_AFFINE = "MlxAffine"


STORED = {SchemeKind.INT8_BLOCK: DType.I8, SchemeKind.INT8_BLOCK_ASYM: DType.I8, SchemeKind.INT4_BLOCK: DType.I4}
"""The kinds that are computed, and what their codes are."""

OPERANDS = {SchemeKind.GGUF: 2, SchemeKind.MXFP4X2: 3}
"""How many operands a scheme has, where it is not 4."""

UNTOLD = (SchemeKind.GGUF, SchemeKind.MXFP4X2)
"""The kinds whose packed weights do not tell their shape."""

NVFP4_BLOCK = 16
"""Values along K that share a scale."""


@dataclass(frozen=True)
class QuantScheme:
    """`block_size` values in a row along K share a scale and a zero point."""

    kind: SchemeKind
    block_size: int = 0

    def __str__(self) -> str:
        return f"{self.kind.value}({self.block_size})" if self.block_size else self.kind.value


@dataclass(frozen=True)
class DequantMatMul(Declared):
    """x [M, K] f32 times (w_q - zp) * scale: w_q [K, N] i8 or i4, scale and zp [ceil(K / block_size), N] f32.

    zp is zero throughout for a symmetric scheme. Ours: a fifth operand, bias [N] f32, and `clamp`, which bounds the
    result. reference/dequant.py names the order of the sums, which every implementation keeps.

    Of other schemes the operands are, with u8 for codes: x, w_q [K, ceil(N / 2)], scale [ceil(K / 16), N] u8 and a
    scale for the tensor f32 [1] (Nvfp4Block); x, w_q, scale (Mxfp4x2); x, w_q [bytes] (Gguf). Nothing computes these.
    The output's type [M, N] f32 is declared for the last two.
    """

    text: ClassVar[str] = "dequant_matmul({scheme})"
    scheme: QuantScheme
    clamp: tuple[float, float] | None = None

    @property
    def arity(self) -> Arity:
        count = OPERANDS.get(self.scheme.kind, 4)
        return Arity(count, count + (self.scheme.kind in STORED))

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        kind, block = self.scheme.kind, self.scheme.block_size
        if kind is SchemeKind.NVFP4_BLOCK:
            return _nvfp4(*operands)
        require(kind not in UNTOLD, f"weights of the scheme {self.scheme} do not tell the output's type: declare it")
        require(kind in STORED, f"the scheme {self.scheme} is not one of a {self.kind_name}")
        if block < 1:
            raise ShapeError(f"blocks of {block} values")
        x, w, scale, zero, *bias = operands
        if len(x.shape) != 2 or len(w.shape) != 2 or x.shape[1] != w.shape[0]:
            raise ShapeError(f"x {list(x.shape)} and w {list(w.shape)} are not [M, K] and [K, N]")
        if w.dtype is not STORED[kind]:
            raise ShapeError(f"w must be {STORED[kind].value} for {self.scheme}, not {w.dtype.value}")
        grid = (-(-w.shape[0] // block), w.shape[1])
        if scale.shape != grid or zero.shape != grid:
            raise ShapeError(f"scales {list(scale.shape)} and zero points {list(zero.shape)}; {list(grid)} are needed")
        if bias and bias[0].shape != grid[1:]:
            raise ShapeError(f"bias must be [{grid[1]}], not {list(bias[0].shape)}")
        if any(operand.dtype is not DType.F32 for operand in (x, scale, zero, *bias)):
            raise ShapeError("x, scales, zero points and bias must be f32")
        return (x.shape[0], w.shape[1]), DType.F32

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        if self.scheme.kind not in UNTOLD:
            Op.check(self, operands, out)
            return
        x, w = operands[:2]
        require_shape("the output", out, (require_rank("x", x, 2)[0], require_rank("the output", out, 2)[1]))
        require(w.dtype is DType.U8, f"w is {w}; u8 is needed")
        require(x.dtype is out.dtype is DType.F32, f"x is {x} and the output {out}; f32 is needed")

    def macs(self, operands: Sequence[TensorType], out: TensorType) -> int:
        return out.elements * operands[0].shape[1]


def _nvfp4(x: TensorType, w: TensorType, scale: TensorType, whole: TensorType) -> tuple[Shape, DType]:
    m, k = require_rank("x", x, 2)
    n = require_rank("scale", scale, 2)[1]
    require_shape("w", w, (k, -(-n // 2)))
    require_shape("scale", scale, (-(-k // NVFP4_BLOCK), n))
    require_shape("the tensor's scale", whole, (1,))
    wanted = (DType.F32, DType.U8, DType.U8, DType.F32)
    found = tuple(operand.dtype for operand in (x, w, scale, whole))
    require(found == wanted, f"operands of {', '.join(dtype.value for dtype in found)}; f32, u8, u8, f32 are needed")
    return (m, n), DType.F32
