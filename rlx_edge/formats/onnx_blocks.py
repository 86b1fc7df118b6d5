"""Weights of a scale a block in float ONNX models: DequantizeLinear with blocks, and ONNX Runtime's MatMulNBits."""

from __future__ import annotations

import numpy as np

from rlx_edge.formats.onnx_integers import CODES, Blocks, to_int8
from rlx_edge.formats.onnx_node import Builder, OnnxNode, RefusedError
from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import DequantMatMul, Op, QuantScheme, Reshape, SchemeKind


def blocks_of(x: Array, scale: Array, zero: Array | None, axis: int, size: int) -> Blocks:
    """The blocks of a constant, of which `size` values in a row along `axis` share a scale and a zero point.

    Raises RefusedError for scales or zero points of another shape.
    """
    if not -x.ndim <= axis < x.ndim or size < 1 or scale.dtype != np.float32:
        raise RefusedError(f"blocks of {size} along axis {axis} of {list(x.shape)}, with scales of {scale.dtype}")
    wanted = [*x.shape]
    wanted[axis] = -(-x.shape[axis] // size)
    if any(list(v.shape) != wanted for v in (scale, zero) if v is not None):
        raise RefusedError(f"scales {list(scale.shape)} for blocks of {size} along axis {axis} of {list(x.shape)}")
    codes, offset = CODES[x.dtype.name], CODES[x.dtype.name].offset
    zeros = np.zeros(scale.shape) if zero is None else zero.astype(np.float32)
    return Blocks(to_int8(x), codes.dtype, scale, (zeros - offset).astype(np.float32), axis % x.ndim, size)


def multiply(node: OnnxNode, x: int, blocks: Blocks) -> tuple[Op, list[int]]:
    """The product of rows x [M, K] with blocks along the first axis of [K, N], as an op with its operands."""
    kind = SchemeKind.INT4_BLOCK if blocks.dtype is not DType.I8 else SchemeKind.INT8_BLOCK
    if kind is SchemeKind.INT8_BLOCK and blocks.zeros.any():
        kind = SchemeKind.INT8_BLOCK_ASYM
    builder, dtype = node.tensors.builder, DType.I8 if blocks.dtype is DType.I8 else DType.I4
    codes = builder.param(f"{node.name}.codes", np.ascontiguousarray(blocks.codes), dtype=dtype)
    operands = [x, codes, node.parameter("scale", blocks.scales), node.parameter("zero_point", blocks.zeros)]
    return DequantMatMul(QuantScheme(kind, blocks.size)), operands


def matmul(node: OnnxNode, blocks: Blocks) -> int:
    """MatMul of a float tensor [.., K] with blocks along K; more axes than two become rows."""
    x, shape = node.operand(0), node.shape(0)
    if not shape or shape[-1] != len(blocks.codes) or node.dtype(0) is not DType.F32:
        raise RefusedError(f"operands {node.dtype(0).value}{list(shape)} and {list(blocks.codes.shape)}")
    if len(shape) == 2:
        return node.result(*multiply(node, x, blocks))
    rows = node.step(Reshape((-1, shape[-1])), [x], "rows")
    product = node.step(*multiply(node, rows, blocks), "product")
    return node.result(Reshape((*shape[:-1], blocks.codes.shape[1])), [product])


def matmul_nbits(node: OnnxNode) -> int:
    """MatMul with weights [N, blocks, bytes]: unsigned codes, the first in the lowest bits, 0 in the middle."""
    k, n, bits, size = (node.integer(name, 0) for name in ("K", "N", "bits", "block_size"))
    node.without_effect("accuracy_level", "weight_prepacked")
    if node.given(4) or node.given(5):
        raise RefusedError("a group index or a bias is not supported; add the bias by an Add")
    if bits not in (4, 8) or min(k, n) < 1 or size < 16:
        raise RefusedError(f"attributes K={k}, N={n}, bits={bits}, block_size={size}; 4 and 8 bits are supported")
    count = -(-k // size)
    codes = _unsigned(node.constant(1, "the weights"), bits, n, count * size)
    scales = node.constant(2, "the scale")
    if scales.dtype != np.float32 or scales.size != n * count:
        raise RefusedError(f"scales {scales.dtype}{list(scales.shape)}; float32 of {n * count} elements is needed")
    middle = 1 << (bits - 1)
    zeros = np.full((n, count), middle, np.float32)
    if node.given(3):
        held = node.constant(3, "the zero point")
        is_packed = held.dtype == np.uint8
        if not is_packed and (held.dtype != np.float32 or held.size != n * count):
            raise RefusedError(f"zero points {held.dtype}{list(held.shape)}")
        zeros = (_unsigned(held, bits, n, count) if is_packed else held.reshape(n, count)).astype(np.float32)
    signed = (codes[:, :k].T.astype(np.int16) - middle).astype(np.int8)
    dtype = DType.I4 if bits == 4 else DType.I8
    return matmul(node, Blocks(signed, dtype, scales.reshape(n, count).T, (zeros - middle).T, 0, size))


def _unsigned(packed: Array, bits: int, rows: int, count: int) -> Array:
    """uint8 codes [rows, count] of packed bytes, each row of whole bytes."""
    row = -(-count * bits // 8)
    if packed.dtype != np.uint8 or packed.size != rows * row:
        raise RefusedError(f"packed {packed.dtype}{list(packed.shape)}; uint8 of {rows * row} elements is needed")
    if bits == 8:
        return packed.reshape(rows, count)
    both = packed.reshape(rows, row)
    return np.stack([both & 15, both >> 4], axis=2).reshape(rows, 2 * row)[:, :count]


OPS: dict[str, Builder] = {"com.microsoft.MatMulNBits": matmul_nbits}
