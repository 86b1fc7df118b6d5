"""The op kinds, one frozen dataclass each, grouped by family as in the RLX vocabulary."""

from __future__ import annotations

from rlx_edge.ir.ops.base import Declared, Layout, Leaf, Op, ShapeError
from rlx_edge.ir.ops.conv import Conv, Conv3d, ConvTranspose2d, Pool
from rlx_edge.ir.ops.dequant import DequantMatMul, QuantScheme, SchemeKind
from rlx_edge.ir.ops.elementwise import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    Clamp,
    CmpOp,
    Compare,
    Where,
)
from rlx_edge.ir.ops.fake_quant import (
    EMA,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Fixed,
    PerBatch,
    ScaleMode,
    SteKind,
)
from rlx_edge.ir.ops.indexing import (
    Gather,
    GatherElements,
    GatherNd,
    ScatterElements,
    ScatterNd,
    ScatterNdReduction,
)
from rlx_edge.ir.ops.leaf import Constant, Input, Param
from rlx_edge.ir.ops.linalg import MatMul
from rlx_edge.ir.ops.normalization import GroupNorm, LayerNorm, RmsNorm
from rlx_edge.ir.ops.quant import Dequantize, QConv2d, QMatMul, Quantize
from rlx_edge.ir.ops.reduction import ArgMax, ArgMin, ArgSort, CumProd, Cumsum, Reduce, ReduceOp, Softmax, TopK
from rlx_edge.ir.ops.shape import (
    Concat,
    Expand,
    Narrow,
    Pad,
    PadMode,
    Reshape,
    Reverse,
    Slice,
    Tile,
    Transpose,
    Trilu,
)

MOVES = (Reshape, Transpose, Narrow, Slice, Expand, Reverse)
"""Ops of one operand whose every output element is one of the operand's."""

ALL: tuple[type[Op], ...] = (
    *(Input, Param, Constant),
    *(Quantize, Dequantize, QMatMul, QConv2d, DequantMatMul),
    *(FakeQuantize, FakeQuantizeBackward),
    *(FakeQuantizeLSQ, FakeQuantizeLSQBackwardX, FakeQuantizeLSQBackwardScale),
    *(Conv, ConvTranspose2d, Conv3d, Pool, MatMul),
    *(Binary, Activation, Clamp, Cast, Compare, Where),
    *(Reduce, Softmax, Cumsum, CumProd, ArgMax, ArgMin, TopK, ArgSort),
    *(LayerNorm, RmsNorm, GroupNorm),
    *(Reshape, Transpose, Pad, Concat, Narrow, Slice, Expand, Tile, Reverse, Trilu),
    *(Gather, GatherElements, GatherNd, ScatterElements, ScatterNd),
)
"""Every kind, for tables that must be complete."""

BY_KIND = {kind.__name__: kind for kind in ALL}

__all__ = [
    "ALL",
    "BY_KIND",
    "EMA",
    "MOVES",
    "Activation",
    "ActivationFn",
    "ArgMax",
    "ArgMin",
    "ArgSort",
    "Binary",
    "BinaryOp",
    "Cast",
    "Clamp",
    "CmpOp",
    "Compare",
    "Concat",
    "Constant",
    "Conv",
    "Conv3d",
    "ConvTranspose2d",
    "CumProd",
    "Cumsum",
    "Declared",
    "DequantMatMul",
    "Dequantize",
    "Expand",
    "FakeQuantize",
    "FakeQuantizeBackward",
    "FakeQuantizeLSQ",
    "FakeQuantizeLSQBackwardScale",
    "FakeQuantizeLSQBackwardX",
    "Fixed",
    "Gather",
    "GatherElements",
    "GatherNd",
    "GroupNorm",
    "Input",
    "LayerNorm",
    "Layout",
    "Leaf",
    "MatMul",
    "Narrow",
    "Op",
    "Pad",
    "PadMode",
    "Param",
    "PerBatch",
    "Pool",
    "QConv2d",
    "QMatMul",
    "QuantScheme",
    "Quantize",
    "Reduce",
    "ReduceOp",
    "Reshape",
    "Reverse",
    "RmsNorm",
    "ScaleMode",
    "ScatterElements",
    "ScatterNd",
    "ScatterNdReduction",
    "SchemeKind",
    "ShapeError",
    "Slice",
    "Softmax",
    "SteKind",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Where",
]
