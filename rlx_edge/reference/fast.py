"""The float ops in float32 by BLAS and whole-array numpy: what calibration and simulation run.

The meaning is that of reference/floating.py; only the sums differ, by float32 rounding: a result lies within
(n + 2) * 2^-23 * sum |products| of the reference, for a sum of n products. What has no fast form here runs there.
A call repeated gives the same bits; another batch size may change the last ones, as BLAS sums in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import Binary, BinaryOp, Conv, MatMul, Op, Pool, ReduceOp
from rlx_edge.ir.ops.conv import Window, pad_sides
from rlx_edge.reference.floating import window_counts
from rlx_edge.reference.run import evaluate as evaluate_reference
from rlx_edge.reference.run import observe as observe_by
from rlx_edge.reference.windows import from_nhwc, to_nhwc, windows

BLOCK_BYTES = 1 << 19
"""Working memory of a block: a core's second-level cache on common machines."""

PRODUCTS = 1 << 19
"""Products of one call to BLAS stay below this, where OpenBLAS begins to use threads: on a busy machine these make a
call of 0.1 ms wait for 20 ms."""

SHORT_ROW = 512
"""Below this many channels, numpy's loop over them costs more than tiling a bias over a row of pixels."""

FastOp = Callable[[Op, Sequence[Array]], Array | None]
"""The value, or None where the op has no fast form for such operands."""

ROW_BINARY = {BinaryOp.ADD: np.add, BinaryOp.SUB: np.subtract, BinaryOp.MUL: np.multiply}


def conv(op: Op, x: Sequence[Array]) -> Array:
    """[N, H, W, C] by weights [C_out, kH, kW, C/groups], in the op's layout."""
    assert isinstance(op, Conv)
    image, weights = (np.ascontiguousarray(to_nhwc(a, op.layout)) for a in x)
    if op.groups > 1 and weights.shape[3] == 1:
        result = _depthwise(op, image, weights)
    elif op.groups == 1 and op.kernel_size == (1, 1) and max(op.padding) == 0:
        result = _pointwise(image[:, :: op.stride[0], :: op.stride[1]], weights)
    else:
        result = _by_patches(op, image, weights)
    return from_nhwc(result, op.layout)


def _pointwise(image: Array, weights: Array) -> Array:
    n, h, w, c = image.shape
    result = np.empty((n * h * w, len(weights)), np.float32)
    _product(image.reshape(n * h * w, c), weights.reshape(-1, c).T, result)
    return result.reshape(n, h, w, -1)


def _product(a: Array, b: Array, out: Array) -> None:
    """out = a @ b for matrices, some rows and columns at a time."""
    (m, k), n = a.shape, b.shape[1]
    columns = min(n, max(16, (PRODUCTS - 1) // (32 * k)))
    rows = max(1, (PRODUCTS - 1) // (columns * k))
    for j in range(0, n, columns):
        for i in range(0, m, rows):
            np.matmul(a[i : i + rows], b[:, j : j + columns], out=out[i : i + rows, j : j + columns])


def _by_patches(op: Conv, image: Array, weights: Array) -> Array:
    """Patches of some samples, or of some rows of one, at a time, then a matrix product a group."""
    patches = windows(image, op, 0.0, op.dilation)
    n, h, w, kh, kw, c = patches.shape
    groups, c_out = op.groups, len(weights)
    matrices = weights.reshape(groups, c_out // groups, -1)
    result = np.empty((n, h, w, groups, c_out // groups), np.float32)
    for samples, rows in _blocks(n, h, 4 * w * kh * kw * c):
        block, out = patches[samples, rows], result[samples, rows].reshape(-1, groups, c_out // groups)
        split = block.reshape(*block.shape[:5], groups, c // groups)
        for group in range(groups):
            _product(split[..., group, :].reshape(len(out), -1), matrices[group].T, out[:, group])
    return result.reshape(n, h, w, c_out)


def _blocks(samples: int, rows: int, row_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Slices of samples and rows of at most BLOCK_BYTES, or of a single row."""
    fit = max(1, BLOCK_BYTES // max(1, row_bytes))
    if fit >= rows:
        step = fit // rows
        yield from ((slice(i, i + step), slice(None)) for i in range(0, samples, step))
    else:
        for i in range(samples):
            yield from ((slice(i, i + 1), slice(y, y + fit)) for y in range(0, rows, fit))


def _depthwise(op: Conv, image: Array, weights: Array) -> Array:
    """A multiply-add a kernel position, over rows of pixels and channels."""
    c_out = weights.shape[0]
    if c_out != op.groups:
        image = np.repeat(image, c_out // op.groups, axis=3)
    kernel = weights.reshape(c_out, *op.kernel_size).transpose(1, 2, 0)
    shape = _output_shape(op, image, op.dilation)
    result = np.empty(shape, np.float32)
    for block, out in _row_blocks(image, result):
        product: Array | None = None
        for (ky, kx), values in _shifted(op, block, 0.0, op.dilation, shape):
            row = np.tile(kernel[ky, kx], shape[2])
            if product is None:
                np.multiply(values, row, out=out)
                product = np.empty_like(out)
            else:
                np.multiply(values, row, out=product)
                out += product
    return result


def _output_shape(op: Window, image: Array, dilation: tuple[int, ...]) -> tuple[int, int, int, int]:
    top, left, bottom, right = pad_sides(op.padding)
    n, h, w, c = image.shape
    rows = (h + top + bottom - (op.kernel_size[0] - 1) * dilation[0] - 1) // op.stride[0] + 1
    columns = (w + left + right - (op.kernel_size[1] - 1) * dilation[1] - 1) // op.stride[1] + 1
    return n, rows, columns, c


def _row_blocks(image: Array, result: Array) -> Iterator[tuple[Array, Array]]:
    """Some samples of an image with the place for their results, as rows [samples, H_out, W_out * C]."""
    n, h, w, c = result.shape
    step = max(1, BLOCK_BYTES // (4 * max(math.prod(image.shape[1:]), h * w * c)))
    for i in range(0, n, step):
        yield image[i : i + step], result[i : i + step].reshape(-1, h, w * c)


def _shifted(
    op: Window, image: Array, fill: float, dilation: tuple[int, ...], out: tuple[int, int, int, int]
) -> Iterator[tuple[tuple[int, int], Array]]:
    """For each kernel position what every window has there: ((ky, kx), [N, H_out, W_out * C]), views.

    Columns that lie `stride` apart are brought together first, so that numpy's inner loops run over whole rows.
    """
    top, left, bottom, right = pad_sides(op.padding)
    n, h, w, c = image.shape
    (sy, sx), (dy, dx) = op.stride, dilation
    width = -(-(w + left + right) // sx)
    phases: dict[int, Array] = {}
    for ky in range(op.kernel_size[0]):
        for kx in range(op.kernel_size[1]):
            skip, phase = divmod(kx * dx, sx)
            if phase not in phases:
                made = np.full((n, h + top + bottom, width, c), fill, np.float32)
                first = (phase - left) % sx
                start, columns = (first + left) // sx, image[:, :, first::sx]
                made[:, top : top + h, start : start + columns.shape[2]] = columns
                phases[phase] = made.reshape(n, h + top + bottom, width * c)
            rows = slice(ky * dy, ky * dy + (out[1] - 1) * sy + 1, sy)
            yield (ky, kx), phases[phase][:, rows, skip * c : (skip + out[2]) * c]


def pool(op: Op, x: Sequence[Array]) -> Array:
    """Maxima or means over windows, in the op's layout."""
    assert isinstance(op, Pool)
    image = np.ascontiguousarray(to_nhwc(x[0], op.layout))
    join, fill = (np.maximum, -np.inf) if op.kind is ReduceOp.MAX else (np.add, 0.0)
    shape = _output_shape(op, image, (1, 1))
    if shape[1] == shape[2] == 1 and max(op.padding) == 0:
        kh, kw = op.kernel_size
        result = join.reduce(image[:, :kh, :kw], axis=(1, 2), keepdims=True)
    else:
        result = np.empty(shape, np.float32)
        for block, out in _row_blocks(image, result):
            started = False
            for _, values in _shifted(op, block, fill, (1, 1), shape):
                if started:
                    join(out, values, out=out)
                else:
                    out[:], started = values, True
    if op.kind is ReduceOp.MEAN:
        result /= window_counts(op, image).astype(np.float32)
    return from_nhwc(result, op.layout)


def matmul(op: Op, x: Sequence[Array]) -> Array:
    """[.., M, K] by [.., K, N]."""
    a, b = x
    if b.ndim > 2:
        return np.asarray(np.matmul(a, b))
    result = np.empty((*a.shape[:-1], b.shape[1]), np.float32)
    _product(a.reshape(-1, a.shape[-1]), b, result.reshape(-1, b.shape[1]))
    return result


def binary(op: Op, x: Sequence[Array]) -> Array | None:
    """One number a channel beside an image, as a bias is: repeated over a row of pixels first."""
    assert isinstance(op, Binary)
    a, b = x
    function = ROW_BINARY.get(op.fn)
    if function is None or a.ndim < 3 or not 0 < b.ndim <= a.ndim:
        return None
    if not a.shape[-1] == b.shape[-1] == b.size < SHORT_ROW:
        return None
    rows = function(np.ascontiguousarray(a).reshape(-1, a.shape[-2] * a.shape[-1]), np.tile(b.reshape(-1), a.shape[-2]))
    return np.asarray(rows).reshape(a.shape)


FAST: dict[type[Op], FastOp] = {Conv: conv, Pool: pool, MatMul: matmul, Binary: binary}
"""The ops that have a fast form on float32."""


def evaluate(graph: Graph, node: Node, operands: Sequence[Array]) -> Array:
    """One node's value from its operands' values, as reference.run.evaluate, but quick on float32."""
    if all(type.dtype is DType.F32 for type in graph.operand_types(node)) and type(node.op) in FAST:
        value = FAST[type(node.op)](node.op, operands)
        if value is not None:
            return value
    return evaluate_reference(graph, node, operands)


def observe(graph: Graph, inputs: Mapping[str, Array], callback: Callable[[Node, Array], None]) -> None:
    """As reference.run.observe: every node's value, as it is computed, to `callback(node, value)`; quick on float32."""
    observe_by(graph, inputs, callback, evaluate)
