"""Matrix products of float activations with weights of a scale a block, as kernel calls."""

from __future__ import annotations

import numpy as np

from rlx_edge.cgen import kernels
from rlx_edge.cgen.plan import Call, Constant, proportional
from rlx_edge.cgen.rows import image_views
from rlx_edge.ir import Array, DType, Graph, Node, subbyte
from rlx_edge.ir.ops import DequantMatMul
from rlx_edge.reference.dequant import NO_BOUNDS, ordered

COLUMNS = 4
"""How many output columns are computed at a time (RLX_F32_COLUMNS)."""


def dequant_matmul(graph: Graph, node: Node) -> tuple[Call, ...]:
    op, x = node.op, graph.nodes[node.inputs[0]]
    assert isinstance(op, DequantMatMul)
    held = [graph.constant(operand) for operand in graph.operands(node)[1:]]
    w, scales, zeros = (values for values in held[:3] if values is not None)
    bias = held[3] if len(held) > 3 else None
    is_packed = graph.operand_types(node)[1].dtype is DType.I4
    rows, (in_c, out_c), has_zeros = x.type.shape[0], w.shape, bool(zeros.any())
    low, high = (ordered(bound) for bound in op.clamp or NO_BOUNDS)
    block = min(op.scheme.block_size, in_c)  # A file may name any size, and the kernel's is an int32.
    params = dict(in_c=in_c, out_c=out_c, block=block, blocks=len(scales), low=low, high=high)
    params |= dict(has_zero_points=int(has_zeros), has_bias=int(bias is not None))
    none, codes = np.zeros(1, np.float32), grouped(w)
    constants = {
        "weights": Constant("weights", subbyte.pack(codes, 4).view(np.int8) if is_packed else codes),
        "scales": _bits("scales", grouped(scales)),
        "zero_points": _bits("zero_points", grouped(zeros) if has_zeros else none),
        "bias": _bits("bias", none if bias is None else bias),
    }
    kernel = kernels.DEQUANT_MATMUL_W4 if is_packed else kernels.DEQUANT_MATMUL_W8
    groups = rows * len(codes)
    counts = dict(rows=rows, groups=groups, blocks=groups * len(scales), positions=groups * in_c, outputs=rows * out_c)
    counts |= dict(plain=groups * in_c) if has_zeros else {}
    (source,), (target,) = image_views(x.type, x.id), image_views(node.type, node.id)
    return (Call(kernel, params, (source,), target, rows, constants, work=proportional(counts, rows)),)


def grouped(values: Array) -> Array:
    """[R, N] as [ceil(N / 4), R, 4]; columns that there are not are 0."""
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % COLUMNS)))
    return np.ascontiguousarray(padded.reshape(len(values), -1, COLUMNS).transpose(1, 0, 2))


def _bits(name: str, values: Array) -> Constant:
    """float32 values as the int32 of their bits, which is what constants are in C."""
    return Constant(name, np.ascontiguousarray(values, np.float32).view(np.int32))
