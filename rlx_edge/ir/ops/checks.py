"""What several kinds ask of their operands. All of these raise ShapeError."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import ShapeError, broadcast_shapes
from rlx_edge.ir.tensor import Shape, TensorType

FLOATS = (DType.F16, DType.F32, DType.F64)


def require(holds: bool, message: str) -> None:
    if not holds:
        raise ShapeError(message)


def require_floats(operands: Sequence[TensorType]) -> DType:
    """The floating-point dtype that all operands have."""
    found = ", ".join(operand.dtype.value for operand in operands)
    require(len({operand.dtype for operand in operands}) == 1, f"operands of different dtypes: {found}")
    require(operands[0].dtype in FLOATS, f"operands of {operands[0].dtype.value}; a float is needed")
    return operands[0].dtype


def require_rank(name: str, operand: TensorType, rank: int) -> Shape:
    require(len(operand.shape) == rank, f"{name} is {operand}; rank {rank} is needed")
    return operand.shape


def require_shape(name: str, operand: TensorType, shape: Shape) -> None:
    require(operand.shape == shape, f"{name} is {operand}; shape {list(shape)} is needed")


def require_modulation(name: str, operand: TensorType, x: Shape) -> None:
    """A factor that broadcasts over all axes of x but the last, as [B, 1, D] does over [B, S, D]."""
    fits = bool(x) and operand.shape[-1:] == x[-1:] and broadcast_shapes(operand.shape, x) == x
    require(fits, f"{name} is {operand}, which does not broadcast over all axes but the last of {list(x)}")
