"""The op kinds, one frozen dataclass each, grouped by family as in the RLX vocabulary."""

from __future__ import annotations

from rlx_edge.ir.ops.base import Layout, Leaf, Op, ShapeError
from rlx_edge.ir.ops.conv import Conv, Pool
from rlx_edge.ir.ops.elementwise import Activation, ActivationFn, Binary, BinaryOp, Clamp
from rlx_edge.ir.ops.leaf import Constant, Input, Param
from rlx_edge.ir.ops.linalg import MatMul
from rlx_edge.ir.ops.quant import Dequantize, QConv2d, QMatMul, Quantize
from rlx_edge.ir.ops.reduction import Reduce, ReduceOp, Softmax
from rlx_edge.ir.ops.shape import Concat, Pad, PadMode, Reshape, Transpose

ALL: tuple[type[Op], ...] = (
    *(Input, Param, Constant),
    *(Quantize, Dequantize, QMatMul, QConv2d),
    *(Conv, Pool, MatMul),
    *(Binary, Activation, Clamp),
    *(Reduce, Softmax),
    *(Reshape, Transpose, Pad, Concat),
)
"""Every kind, for tables that must be complete."""

BY_KIND = {kind.__name__: kind for kind in ALL}

__all__ = [
    "ALL",
    "BY_KIND",
    "Activation",
    "ActivationFn",
    "Binary",
    "BinaryOp",
    "Clamp",
    "Concat",
    "Constant",
    "Conv",
    "Dequantize",
    "Input",
    "Layout",
    "Leaf",
    "MatMul",
    "Op",
    "Pad",
    "PadMode",
    "Param",
    "Pool",
    "QConv2d",
    "QMatMul",
    "Quantize",
    "Reduce",
    "ReduceOp",
    "Reshape",
    "ShapeError",
    "Softmax",
    "Transpose",
]
