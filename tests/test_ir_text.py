"""The text form, which golden tests and people read."""

from __future__ import annotations

import numpy as np

from rlx_edge.ir import DType, GraphBuilder, QuantParams, Requant, TensorType, real_multipliers, to_text
from rlx_edge.ir.ops import Binary, BinaryOp, Clamp, Dequantize, Layout, Pool, QConv2d, Quantize, ReduceOp, Reshape

GOLDEN = """\
graph 'small'
  %0 x = input("x") : f32[1, 4, 4, 1]
  %1 q = quantize(s=0.5)(%0) : i8[1, 4, 4, 1] s=0.5 z=-128
  %2 w = param("w") : i8[2, 3, 3, 1] s=axis 0
  %3 b = param("b") : i32[2]
  %4 conv = q_conv2d([3, 3])(%1, %2, %3) : i8[1, 4, 4, 2] s=0.1 z=0  # from conv1, relu1
  %5 pool = pool_Max([2, 2])(%4) : i8[1, 2, 2, 2] s=0.1 z=0
  %6 k = const(8B) : i8[8] s=0.1 z=0
  %7 flat = reshape([1, 8])(%5) : i8[1, 8] s=0.1 z=0
  %8 sum = Add(%7, %6) : i8[1, 8] s=0.2 z=1
  %9 six = clamp(0,6)(%8) : i8[1, 8] s=0.2 z=1
  %10 y = dequantize(s=0.2)(%9) : f32[1, 8]
  return %10, %8
"""


def test_golden() -> None:
    b = GraphBuilder("small")
    x_quant, w_quant = QuantParams.per_tensor(0.5, -128), QuantParams((0.25, 0.5), (0, 0), 0)
    conv_quant, sum_quant = QuantParams.per_tensor(0.1, 0), QuantParams.per_tensor(0.2, 1)
    x = b.input("x", TensorType((1, 4, 4, 1), DType.F32))
    q = b.add(Quantize.to(x_quant, Requant.TFLM), [x], "q", x_quant)
    w = b.param("w", np.zeros((2, 3, 3, 1), np.int8), w_quant)
    bias = b.param("b", np.zeros(2, np.int32))
    conv = b.add(
        QConv2d(
            *((3, 3), (1, 1), (1, 1), (1, 1), 1),
            *(-128, 0, 0, real_multipliers(x_quant, w_quant, conv_quant)),
            Layout.NHWC,
        ),
        [q, w, bias],
        "conv",
        conv_quant,
        sources=("conv1", "relu1"),
    )
    pool = b.add(Pool(ReduceOp.MAX, (2, 2), (2, 2), (0, 0), Layout.NHWC), [conv], "pool", conv_quant)
    k = b.constant("k", np.zeros(8, np.int8), conv_quant)
    flat = b.add(Reshape((1, 8)), [pool], "flat", conv_quant, sources=("flat",))
    total = b.add(Binary(BinaryOp.ADD), [flat, k], "sum", sum_quant)
    six = b.add(Clamp(0.0, 6.0), [total], "six", sum_quant)
    y = b.add(Dequantize.of(sum_quant), [six], "y")
    assert to_text(b.build([y, total])) == GOLDEN
