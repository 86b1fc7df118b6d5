"""The kernels that generated code can call: a line each, in the words of firmware/kernels/rlx_kernels*.h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rlx_edge.cgen import order
from rlx_edge.cgen.order import Accesses

if TYPE_CHECKING:
    from rlx_edge.cgen.plan import Call


@dataclass(frozen=True)
class Kernel:
    """A C kernel: its function, its parameter struct (pointers first, then int32 fields) and its input views.

    `in_place`: the output may be the memory of an input of the same size (when that input is not needed afterwards).
    `stack_bytes` bounds what the kernel and what it calls take from the stack, under any optimization level (a test
    adds up what the compiler says).
    `scratch`: it takes a pointer to scratch memory, aligned to 16, after its views.
    `files`: names and texts of a user's kernel; ours are in firmware/kernels.
    `order`: in which order it reads its inputs and writes its output (cgen/order.py); without one, nothing may overlap.
    """

    name: str
    struct: str
    pointers: tuple[str, ...]
    fields: tuple[str, ...]
    inputs: int = 1
    in_place: bool = False
    stack_bytes: int = 512
    scratch: bool = False
    order: Callable[[Call], Accesses] | None = None
    files: tuple[tuple[str, str], ...] = ()

    @property
    def source(self) -> str:
        """The C file that defines it."""
        return _SOURCES.get(self.name, f"{self.name}.c")


_SOURCES = {"rlx_sub_s8": "rlx_add_s8.c", "rlx_sub_onnx_s8": "rlx_add_onnx_s8.c"}

_CONV_FIELDS = (
    *("in_h", "in_w", "in_c", "out_w", "out_c", "k_h", "k_w"),
    *("stride_h", "stride_w", "dilation_h", "dilation_w", "pad_top", "pad_left", "groups"),
    *("x_zp", "w_zp", "out_zp", "low", "high", "per_channel"),
)
_WEIGHTS = ("weights", "bias", "multipliers", "shifts")
_POOL_FIELDS = (
    *("in_h", "in_w", "channels", "out_w", "k_h", "k_w"),
    *("stride_h", "stride_w", "pad_top", "pad_left", "x_zp", "count_pad", "low", "high"),
)
_BINARY_FIELDS = (
    *("width", "channels", "a_stride_w", "a_stride_c", "b_stride_w", "b_stride_c"),
    *("a_zp", "b_zp", "out_zp", "low", "high"),
    *("left_shift", "a_multiplier", "a_shift", "b_multiplier", "b_shift", "out_multiplier", "out_shift"),
)
_REQUANTIZE_FIELDS = ("width", "x_zp", "out_zp", "multiplier", "shift", "low", "high")
_QUANTIZE_FIELDS = ("width", "scale_bits", "zero_point", "low", "high")

_PIXELS = partial(order.window_order, reads_again=True)
"""A pixel after the other; its window is read again for each few channels."""

CONV = Kernel("rlx_conv_s8", "rlx_conv_t", _WEIGHTS, _CONV_FIELDS, stack_bytes=896, order=_PIXELS)
DEPTHWISE = Kernel("rlx_depthwise_s8", "rlx_conv_t", _WEIGHTS, _CONV_FIELDS, stack_bytes=640, order=_PIXELS)
DENSE = Kernel(
    "rlx_dense_s8",
    "rlx_dense_t",
    _WEIGHTS,
    ("in_c", "out_c", "w_zp", "out_zp", "low", "high", "per_channel"),
    order=order.rowwise_order,
)
AVG_POOL = Kernel("rlx_avg_pool_s8", "rlx_pool_t", (), (*_POOL_FIELDS, "half_up"), order=_PIXELS, stack_bytes=640)
MAX_POOL = Kernel("rlx_max_pool_s8", "rlx_pool_t", (), (*_POOL_FIELDS, "half_up"), order=_PIXELS)
POOL_SUM = replace(AVG_POOL, name="rlx_pool_sum_s8", inputs=2, order=order.pool_sum_order)
POOL_MEAN = replace(AVG_POOL, name="rlx_pool_mean_s8", order=order.pool_mean_order)
ADD = Kernel("rlx_add_s8", "rlx_binary_t", (), _BINARY_FIELDS, inputs=2, in_place=True, order=order.binary_order)
SUB = Kernel("rlx_sub_s8", "rlx_binary_t", (), _BINARY_FIELDS, inputs=2, in_place=True, order=order.binary_order)
MUL = Kernel("rlx_mul_s8", "rlx_binary_t", (), _BINARY_FIELDS, inputs=2, in_place=True, order=order.binary_order)
MEAN = Kernel(
    "rlx_mean_s8",
    "rlx_mean_t",
    (),
    ("reduce_0", "keep_1", "reduce_1", "keep_2", "x_zp", "out_zp", "multiplier", "shift"),
    order=order.mean_order,
)
SOFTMAX = Kernel(
    "rlx_softmax_s8",
    "rlx_softmax_t",
    (),
    ("width", "multiplier", "left_shift", "diff_min"),
    in_place=True,
    order=order.softmax_order,
)
PAD = Kernel(
    "rlx_pad_s8",
    "rlx_pad_t",
    (),
    ("in_h", "in_w", "in_c", "out_w", "out_c", "top", "left", "front", "value"),
    order=order.pad_order,
)
TRANSPOSE = Kernel(
    "rlx_transpose_s8",
    "rlx_transpose_t",
    (),
    ("d1", "d2", "d3", "stride_0", "stride_1", "stride_2", "stride_3"),
    order=order.strided_order,
)
COPY = Kernel("rlx_copy_s8", "rlx_copy_t", (), ("bytes",), order=order.copy_order)
REQUANTIZE = Kernel(
    "rlx_requantize_s8", "rlx_requantize_t", (), _REQUANTIZE_FIELDS, in_place=True, order=order.elementwise_order
)
CLAMP = replace(REQUANTIZE, name="rlx_clamp_s8")
LOOKUP = Kernel("rlx_lookup_s8", "rlx_lookup_t", ("table",), ("width",), in_place=True, order=order.elementwise_order)
QUANTIZE = Kernel(
    "rlx_quantize_f32", "rlx_quantize_t", (), _QUANTIZE_FIELDS, order=partial(order.cast_order, read=4, write=1)
)
DEQUANTIZE = Kernel(
    "rlx_dequantize_f32", "rlx_quantize_t", (), _QUANTIZE_FIELDS, order=partial(order.cast_order, read=1, write=4)
)

DEQUANT_MATMUL_W8 = Kernel(
    "rlx_dequant_matmul_w8_f32",
    "rlx_dequant_matmul_t",
    ("weights", "scales", "zero_points", "bias"),
    ("in_c", "out_c", "block", "blocks", "has_zero_points", "has_bias", "low", "high"),
    stack_bytes=576,
    order=order.rowwise_order,
)
DEQUANT_MATMUL_W4 = replace(DEQUANT_MATMUL_W8, name="rlx_dequant_matmul_w4_f32")

# Twins under the rounding rule onnx.
CONV_ONNX = replace(CONV, name="rlx_conv_onnx_s8", stack_bytes=1152)
DEPTHWISE_ONNX = replace(DEPTHWISE, name="rlx_depthwise_onnx_s8", stack_bytes=896)
DENSE_ONNX = replace(DENSE, name="rlx_dense_onnx_s8", stack_bytes=704)
AVG_POOL_ONNX = Kernel(
    "rlx_avg_pool_onnx_s8",
    "rlx_pool_onnx_t",
    (),
    (*_POOL_FIELDS, "x_scale", "out_scale", "out_zp"),
    stack_bytes=1024,
    order=_PIXELS,
)
ADD_ONNX = replace(ADD, name="rlx_add_onnx_s8", stack_bytes=1024)
SUB_ONNX = replace(SUB, name="rlx_sub_onnx_s8", stack_bytes=1024)
MUL_ONNX = replace(MUL, name="rlx_mul_onnx_s8", stack_bytes=768)
MEAN_ONNX = replace(MEAN, name="rlx_mean_onnx_s8", stack_bytes=576)
SOFTMAX_ONNX = Kernel(
    "rlx_softmax_onnx_s8",
    "rlx_softmax_onnx_t",
    ("powers",),
    ("width", "mantissa", "shift", "out_zp"),
    in_place=True,
    order=order.softmax_order,
)
QUANTIZE_ONNX = replace(QUANTIZE, name="rlx_quantize_onnx_f32", stack_bytes=704)

ALL: tuple[Kernel, ...] = (
    *(CONV, DEPTHWISE, DENSE, AVG_POOL, MAX_POOL, ADD, SUB, MUL, MEAN, SOFTMAX),
    *(PAD, TRANSPOSE, COPY, REQUANTIZE, CLAMP, QUANTIZE, DEQUANTIZE, LOOKUP),
    *(CONV_ONNX, DEPTHWISE_ONNX, DENSE_ONNX, AVG_POOL_ONNX, ADD_ONNX, SUB_ONNX, MUL_ONNX, MEAN_ONNX, SOFTMAX_ONNX),
    *(QUANTIZE_ONNX, POOL_SUM, POOL_MEAN, DEQUANT_MATMUL_W8, DEQUANT_MATMUL_W4),
)
"""The portable kernels, which run everywhere. cgen/variants/ has those of instruction sets."""
