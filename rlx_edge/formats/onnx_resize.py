"""Resize and Upsample: each axis on its own, as a lookup (nearest) or as a product with a constant matrix.

Every interpolation of an axis is linear in its elements: out = W * x, where row i of W holds the weights of the
elements near the place that output i comes from. Formulas are those of ONNX's documentation of Resize.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rlx_edge.formats.onnx_node import Builder, OnnxNode, RefusedError, from_start
from rlx_edge.ir import Array, DType
from rlx_edge.ir.ops import Binary, BinaryOp, Gather, MatMul, Reshape, Transpose

MATRIX_LIMIT = 1 << 22
"""Elements of an axis before and after, multiplied: far more than the images of a microcontroller need."""

NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Which element a place between two is taken from."""


@dataclass(frozen=True)
class Axis:
    """How one axis is resized: from `size` to `resized` elements; `roi` is the part that tf_crop_and_resize takes."""

    index: int
    size: int
    resized: int
    scale: float
    roi: tuple[float, float]


@dataclass(frozen=True)
class Rules:
    """The attributes of Resize."""

    mode: str
    transformation: str
    nearest: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


def resize(node: OnnxNode) -> int:
    old = node.opset < 11
    rules = Rules(
        node.text("mode", "nearest"),
        "asymmetric" if old else node.text("coordinate_transformation_mode", "half_pixel"),
        "floor" if old else node.text("nearest_mode", "round_prefer_floor"),
        node.real("cubic_coeff_a", -0.75),
        node.integer("exclude_outside", 0) != 0,
        node.integer("antialias", 0) != 0,
        node.real("extrapolation_value", 0.0),
    )
    if rules.mode not in ("nearest", "linear", "cubic") or rules.nearest not in NEAREST:
        raise RefusedError(f"attributes mode={rules.mode} and nearest_mode={rules.nearest} are not supported")
    if rules.mode != "nearest" and node.dtype(0) is not DType.F32:
        raise RefusedError(f"mode {rules.mode} on {node.dtype(0).value}; f32 is needed")
    x = node.operand(0)
    for axis in _axes(node, old):
        x = _resize_axis(node, x, axis, rules)
    return node.result(Reshape(node.type_of(x).shape), [x])


def upsample(node: OnnxNode) -> int:
    """Resize as it was up to opset 9: asymmetric, rounding down."""
    return resize(node)


def _axes(node: OnnxNode, old: bool) -> list[Axis]:
    """The axes that change, from `scales` or `sizes`."""
    shape = node.shape(0)
    axes = from_start(node.integers("axes", range(len(shape))), len(shape))
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    roi = [0.0] * len(axes) + [1.0] * len(axes)
    if not old and node.given(1) and node.constant(1, "operand roi").size:
        roi = [float(v) for v in node.constant(1, "operand roi")]
    scales_at, sizes_at = (1, 3) if old else (2, 3)
    by_scale = node.given(scales_at) and node.constant(scales_at, "operand scales").size > 0
    if by_scale:
        scales = [float(s) for s in node.constant(scales_at, "operand scales").reshape(-1)]
    else:
        wanted = node.indices(sizes_at, "operand sizes")
        scales = [w / shape[axis] for axis, w in zip(axes, wanted, strict=False)]
    if len(scales) != len(axes) or len(roi) != 2 * len(axes) or not all(0 < s < MATRIX_LIMIT for s in scales):
        raise RefusedError(f"scales {scales} for axes {list(axes)}: a positive number an axis is needed")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise RefusedError(f"attribute keep_aspect_ratio_policy={policy} is not supported")
    if policy != "stretch" and not by_scale:
        scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
    sizes = [math.floor(shape[axis] * s + (0.0 if by_scale else 0.5)) for axis, s in zip(axes, scales, strict=True)]
    if min(sizes, default=1) < 1:
        raise RefusedError(f"sizes {sizes}: an axis without elements")
    found = [Axis(axis, shape[axis], sizes[i], scales[i], (roi[i], roi[len(axes) + i])) for i, axis in enumerate(axes)]
    return sorted(found, key=lambda axis: axis.index)


def _places(axis: Axis, rules: Rules) -> Array:
    """For each output element, the place in the operand that it comes from, a real number."""
    i = np.arange(axis.resized, dtype=np.float64)
    n, m, scale = axis.size, axis.resized, axis.scale
    half_pixel = (i + 0.5) / scale - 0.5
    if rules.transformation == "half_pixel":
        return half_pixel
    if rules.transformation == "half_pixel_symmetric":
        return np.asarray(half_pixel + n / 2 * (1 - m / (scale * n)))
    if rules.transformation == "pytorch_half_pixel":
        return half_pixel if m > 1 else np.zeros(1)
    if rules.transformation == "asymmetric":
        return np.asarray(i / scale)
    if rules.transformation == "align_corners":
        if abs(scale * n - m) > 1e-4:
            # ONNX's own evaluator takes scale * n here, onnxruntime the whole size: their results differ.
            raise RefusedError("align_corners with scales that give no whole sizes; give `sizes` instead")
        return i * (n - 1) / (m - 1) if m > 1 else np.zeros(1)
    if rules.transformation == "tf_crop_and_resize":
        start, end = axis.roi
        if m == 1:
            return np.array([0.5 * (start + end) * (n - 1)])
        return np.asarray(start * (n - 1) + i * (end - start) * (n - 1) / (m - 1))
    raise RefusedError(f"attribute coordinate_transformation_mode={rules.transformation} is not supported")


def _resize_axis(node: OnnxNode, x: int, axis: Axis, rules: Rules) -> int:
    if axis.size * axis.resized > MATRIX_LIMIT:
        raise RefusedError(f"an axis of {axis.size} elements resized to {axis.resized}")
    places = _places(axis, rules)
    outside = np.zeros(axis.resized, bool)
    if rules.transformation == "tf_crop_and_resize":
        outside = (places < 0) | (places > axis.size - 1)
    if rules.mode == "nearest" and not outside.any():
        chosen = np.clip(NEAREST[rules.nearest](places), 0, axis.size - 1).astype(np.int64)
        if np.array_equal(chosen, np.arange(axis.size)):
            return x
        return node.step(Gather(axis.index), [x, node.values(f"chosen{axis.index}", chosen)], f"axis{axis.index}")
    weights = _weights(axis, rules, places)
    weights[outside] = 0.0
    if np.array_equal(weights, np.eye(axis.size)):
        return x
    result = _product(node, x, axis.index, weights)
    if not outside.any():
        return result
    rank = len(node.shape(0))
    shape = [axis.resized if i == axis.index else 1 for i in range(rank)]
    fill = node.parameter(f"fill{axis.index}", np.where(outside, rules.extrapolation, 0.0).reshape(shape))
    return node.step(Binary(BinaryOp.ADD), [result, fill], f"filled{axis.index}")


def _weights(axis: Axis, rules: Rules, places: Array) -> Array:
    """The matrix [resized, size]. Elements beyond the ends count as the last ones, or not at all."""
    weights = np.zeros((axis.resized, axis.size))
    rows = np.arange(axis.resized)
    if rules.mode == "nearest":
        weights[rows, np.clip(NEAREST[rules.nearest](places), 0, axis.size - 1).astype(int)] = 1.0
        return weights
    narrow = min(axis.scale, 1.0) if rules.antialias else 1.0  # Antialiasing widens the kernel as it shrinks the image.
    reach = math.ceil((2.0 if rules.mode == "cubic" else 1.0) / narrow)
    first = np.floor(places).astype(int)
    for offset in range(-reach, reach + 2):
        near = first + offset
        weight = _kernel((near - places) * narrow, rules)
        if rules.exclude_outside:
            weight = np.where((near < 0) | (near >= axis.size), 0.0, weight)
        np.add.at(weights, (rows, np.clip(near, 0, axis.size - 1)), weight)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _kernel(distance: Array, rules: Rules) -> Array:
    """Weights by distance: a triangle, or Keys' cubic with the parameter a."""
    t, a = np.abs(distance), rules.cubic_a
    if rules.mode == "linear":
        return np.maximum(1.0 - t, 0.0)
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _product(node: OnnxNode, x: int, axis: int, weights: Array) -> int:
    """weights * x along one axis: at once for the last two axes, else with that axis brought to the end."""
    rank, suffix = len(node.shape(0)), f"axis{axis}"
    if axis == rank - 2:
        return node.step(MatMul(), [node.parameter(f"weights{axis}", weights), x], suffix)
    columns = node.parameter(f"weights{axis}", weights.T)
    if axis == rank - 1 and rank > 1:
        return node.step(MatMul(), [x, columns], suffix)
    if rank == 1:
        row = node.step(Reshape((1, node.shape(0)[0])), [x], "row")
        return node.step(Reshape((weights.shape[0],)), [node.step(MatMul(), [row, columns], "product")], suffix)
    perm = tuple(rank - 1 if i == axis else axis if i == rank - 1 else i for i in range(rank))
    moved = node.step(Transpose(perm), [x], f"{suffix}_last")
    return node.step(Transpose(perm), [node.step(MatMul(), [moved, columns], f"{suffix}_product")], suffix)


OPS: dict[str, Builder] = {"Resize": resize, "Upsample": upsample}
