"""The table of ONNX ops, put together from the families' tables."""

from __future__ import annotations

from rlx_edge.formats import (
    onnx_blocks,
    onnx_elementwise,
    onnx_linear,
    onnx_moves,
    onnx_quant,
    onnx_reductions,
    onnx_resize,
    onnx_window,
)
from rlx_edge.formats.onnx_node import Builder

OPS: dict[str, Builder] = {
    **onnx_blocks.OPS,
    **onnx_elementwise.OPS,
    **onnx_linear.OPS,
    **onnx_moves.OPS,
    **onnx_quant.OPS,
    **onnx_reductions.OPS,
    **onnx_resize.OPS,
    **onnx_window.OPS,
}
"""ONNX op type -> builder; an op of another domain stands under `domain.type`.

`Constant`, `Shape`, `Size` and every op on constants alone are worked out while importing; an op that is not here, but
that ONNX itself defines by other ops, is imported as these (onnx_functions).
"""
