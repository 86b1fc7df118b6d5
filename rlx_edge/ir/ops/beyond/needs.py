"""What several of these kinds ask of their operands. All of these raise ShapeError."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.checks import require, require_floats, require_rank
from rlx_edge.ir.tensor import Shape, TensorType


def require_dtype(name: str, operand: TensorType, *dtypes: DType) -> None:
    wanted = " or ".join(dtype.value for dtype in dtypes)
    require(operand.dtype in dtypes, f"{name} is {operand}; {wanted} is needed")


def require_like(name: str, operand: TensorType, other_name: str, other: TensorType) -> None:
    """Of the other one's shape and dtype, as a gradient is of what it is the gradient of."""
    same = (operand.shape, operand.dtype) == (other.shape, other.dtype)
    require(same, f"{name} is {operand}, but {other_name} is {other}; they must be of one type")


def require_square(name: str, operand: TensorType, rank: int = 2) -> int:
    """The size n of a matrix [n, n], or with rank 3 of a batch of them [B, n, n]."""
    shape = require_rank(name, operand, rank)
    require(shape[-1] == shape[-2], f"{name} is {operand}; square matrices are needed")
    return shape[-1]


def require_equal_squares(operands: Sequence[TensorType], names: str) -> tuple[Shape, DType]:
    """The type of operands that are all [n, n], named in `names` with spaces between."""
    n = require_square(names.split()[0], operands[0])
    for name, operand in zip(names.split(), operands, strict=True):
        require(operand.shape == (n, n), f"{name} is {operand}; shape {[n, n]} is needed")
    return (n, n), require_floats(operands)


def windows(
    sizes: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape | None = None
) -> tuple[int, ...]:
    """How many windows lie along each spatial axis. `padding`: one number an axis, or all before, then all after."""
    rank = len(sizes)
    steps = (1,) * rank if dilation is None else dilation
    require(
        len(kernel) == len(stride) == len(steps) == rank and len(padding) in (rank, 2 * rank),
        f"kernel_size {list(kernel)}, stride {list(stride)}, padding {list(padding)}; {rank} numbers each are needed",
    )
    require(
        min(*kernel, *stride, *steps) > 0 and min(padding) >= 0,
        "kernel_size, stride and dilation must be positive, padding not negative",
    )
    out = []
    for axis, size in enumerate(sizes):
        reach = (kernel[axis] - 1) * steps[axis] + 1
        room = size + padding[axis] + padding[axis - rank] - reach
        require(room >= 0, f"a window of {reach} over {size} elements of axis {axis + 2}")
        out.append(room // stride[axis] + 1)
    return tuple(out)
