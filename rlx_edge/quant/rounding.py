"""Adaptive rounding: each weight up or down, whichever keeps the layer's result closest on the layer's own inputs.

For inputs x of a layer, changing its weights by d changes an output by d.x, in the mean square by d H d' with
H = E[x x'], the second moments of what the layer reads. Rounding to nearest takes H for a multiple of the identity;
coordinate descent on the integers, from there, takes the true one, so that errors of correlated inputs cancel (the
layer reconstruction of Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization, 2020, solved on the
quadratic form itself). Scales stay as they are: at 8 bits nothing is gained by others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlx_edge.ir import Array, Node
from rlx_edge.ir.ops import Conv, MatMul
from rlx_edge.quant.assign import float_weights
from rlx_edge.quant.layerwise import LayerInputs
from rlx_edge.quant.schemes import WEIGHT_MAX, QuantizedWeights
from rlx_edge.reference.windows import windows

MOST_INPUTS = 2048
"""Weights per output channel beyond which a layer keeps rounding to nearest: H has their square."""

DAMPING = 0.01
"""Added to H's diagonal, as a share of its mean: inputs that hardly vary on the data may do so later."""

SWEEPS = 20
"""Passes over all weights at most; a layer settles in fewer."""

POSITIONS_PER_WEIGHT, LEAST_POSITIONS, MOST_POSITIONS = 64, 1 << 13, 1 << 15
"""How many output positions of a layer, over all samples, make its moments: many times the weights of an output."""

BLOCK_BYTES = 1 << 21
"""Working memory for the patches of some samples."""


def round_adaptively(inputs: LayerInputs, centered: bool = True) -> QuantizedWeights:
    """The layer with its weights rounded for the inputs that it sees; scales and bias unchanged.

    `centered` leaves the mean error out of account: bias correction takes it off afterwards.
    """
    anchor, layer = inputs.fusion.anchor, inputs.layer
    exact = as_matrices(anchor, float_weights(inputs.graph, inputs.fusion).astype(np.float64))
    if exact.shape[2] > MOST_INPUTS:
        return layer
    scales = np.array(layer.weight_params.scales)
    steps = np.broadcast_to(scales, exact.shape[0] * exact.shape[1]).reshape(*exact.shape[:2], 1)
    nearest = as_matrices(anchor, layer.weights.astype(np.float64))
    codes = descend(exact / steps, nearest, damped(second_moments(inputs, centered)), WEIGHT_MAX[layer.bits])
    return replace(layer, weights=from_matrices(anchor, codes.astype(np.int8), layer.weights.shape))


def as_matrices(anchor: Node, weights: Array) -> Array:
    """A layer's weights as [groups, C_out / groups, inputs of one output]."""
    if isinstance(anchor.op, MatMul):
        return weights.T[None]
    assert isinstance(anchor.op, Conv)
    return weights.reshape(anchor.op.groups, weights.shape[0] // anchor.op.groups, -1)


def from_matrices(anchor: Node, matrices: Array, shape: tuple[int, ...]) -> Array:
    """What `as_matrices` was made from."""
    return np.ascontiguousarray(matrices[0].T if isinstance(anchor.op, MatMul) else matrices.reshape(shape))


def input_rows(anchor: Node, x: Array, stride: int = 1) -> Array:
    """What output positions of a layer read, every `stride`-th of a row: [groups, positions, inputs of one output]."""
    if isinstance(anchor.op, MatMul):
        return x.reshape(1, -1, x.shape[-1])[:, ::stride]
    assert isinstance(anchor.op, Conv)
    patches = windows(x, anchor.op, 0.0, anchor.op.dilation)[:, :, ::stride]
    n, h, w, kh, kw, c = patches.shape
    groups = anchor.op.groups
    split = patches.reshape(n * h * w, kh * kw, groups, c // groups)
    return split.transpose(2, 0, 1, 3).reshape(groups, n * h * w, -1)


def second_moments(inputs: LayerInputs, centered: bool) -> Array:
    """E[x x'] of the layer's quantized inputs, [groups, inputs, inputs]; `centered`: their covariance.

    The unit is about a step of the inputs, a power of two, so that squares of values of any size are float32 numbers.
    """
    return _moments(inputs, centered, [inputs.quantized])[0]


def joint_moments(inputs: LayerInputs, centered: bool) -> tuple[Array, Array]:
    """`second_moments`, and E[x0 x'] in the same unit, x0 being the float model's inputs."""
    own, joint = _moments(inputs, centered, [inputs.quantized, inputs.exact])
    return own, joint


def _moments(inputs: LayerInputs, centered: bool, beside: list[list[Array]]) -> list[Array]:
    """E[z x'] for each z of `beside`, a list of one array a batch.

    Products are made of distances from the first batch's means: where inputs vary little, squares of the values
    themselves would leave nothing of that in float32.
    """
    anchor, unit = inputs.fusion.anchor, np.float32(2.0 ** np.frexp(inputs.operand_scale)[1])
    taps = as_matrices(anchor, inputs.layer.weights).shape[2]
    positions = inputs.node.type.elements // inputs.node.type.shape[-1]
    enough = min(max(POSITIONS_PER_WEIGHT * taps, LEAST_POSITIONS), MOST_POSITIONS)
    stride = max(1, positions * sum(len(values) for values in inputs.quantized) // enough)
    step = max(1, BLOCK_BYTES // (4 * taps * getattr(anchor.op, "groups", 1) * max(1, positions // stride)))
    near: list[Array] = []
    sums, means, count = [np.zeros(()) for _ in beside], [np.zeros(()) for _ in beside], 0
    for batch, values in enumerate(inputs.quantized):
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            found = [input_rows(anchor, others[batch][part], stride) / unit for others in beside]
            near = near or [rows.mean(axis=1, keepdims=True) for rows in found]
            found = [rows - center for rows, center in zip(found, near, strict=True)]
            for i, rows in enumerate(found):
                sums[i] = sums[i] + np.matmul(rows.transpose(0, 2, 1), found[0])
                means[i] = means[i] + rows.sum(axis=1, dtype=np.float64)
            count += found[0].shape[1]
    means = [mean / count for mean in means]
    seconds = [np.asarray(total, np.float64) / count for total in sums]
    spread = [found - mean[:, :, None] * means[0][:, None] for found, mean in zip(seconds, means, strict=True)]
    if centered:
        return spread
    whole = [mean + center[:, 0] for mean, center in zip(means, near, strict=True)]
    return [s + mean[:, :, None] * whole[0][:, None] for s, mean in zip(spread, whole, strict=True)]


def damped(moments: Array, share: float = DAMPING) -> Array:
    """Moments [groups, K, K] with a share of the diagonal's mean on their diagonals."""
    return moments + share * ridge(moments)


def ridge(moments: Array) -> Array:
    """The mean of the diagonals of moments [groups, K, K] times the identity."""
    means = np.einsum("gkk->g", moments) / moments.shape[1]
    return np.asarray(means[:, None, None] * np.eye(moments.shape[1]))


def descend(exact: Array, codes: Array, moments: Array, most: int) -> Array:
    """Integers [groups, outputs, K] that lessen e H e' of every output's error e = exact - codes, from `codes` on.

    Their magnitudes stay within `most`.

    Each pass sets every weight in turn, of all outputs at once, to the integer that is best while all others stay. The
    error never grows; the result is a minimum over single weights.
    """
    codes = codes.copy()
    slopes = np.matmul(exact - codes, moments)  # Half of the error's gradient, kept up to date.
    curvatures = np.einsum("gkk->gk", moments)
    for _ in range(SWEEPS):
        changed = False
        for k in range(codes.shape[2]):
            curvature = curvatures[:, k, None]
            wanted = np.rint(np.divide(slopes[:, :, k], curvature, out=np.zeros(codes.shape[:2]), where=curvature > 0))
            moved = np.clip(codes[:, :, k] + wanted, -most, most) - codes[:, :, k]
            if moved.any():
                codes[:, :, k] += moved
                slopes -= moved[:, :, None] * moments[:, k, None, :]
                changed = True
        if not changed:
            break
    return codes
