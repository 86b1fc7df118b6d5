"""An op computed from others, each rounding as it does in a graph."""

from __future__ import annotations

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, DType, TensorType
from rlx_edge.ir.ops import Op
from rlx_edge.reference.run import FLOAT


def apply(op: Op, *operands: Array) -> Array:
    """The value of an op of the front page on these operands. Raises UnsupportedError on dtypes that it has not."""
    types = [TensorType(value.shape, DType.of(value)) for value in operands]
    out = TensorType(*op.infer(types))
    result = FLOAT[type(op)](op, operands, types, out)
    if result.dtype != out.dtype.numpy:
        raise UnsupportedError(f"the reference has no {op.kind_name} on {types[0].dtype.value}")
    return result
