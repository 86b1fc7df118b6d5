"""Weights of few bits: each weight's rounding error is made good by the weights that are still to be rounded.

For inputs x of a layer, an error d of its weights changes an output by d.x, in the mean square by d H d' with the
second moments H = E[x x'] of what the layer reads. Weights are rounded one after another, those of the strongest
inputs first; after each, the others move to where they cancel most of its error (Frantar et al., GPTQ: Accurate
Post-Training Quantization for Generative Pre-trained Transformers, 2022). That is done for several scales of each
output channel, and the one with the least error is kept. Then coordinate descent on the codes (quant/rounding.py),
whose aim is AdaRound's, and the least-squares scale of these codes take turns.

What is rounded is not the float model's weights W, but those that do best on the inputs that the layer gets in the
quantized model: W* = W E[x0 x'] H^-1, x0 being the float model's inputs, so that a layer also makes good what earlier
layers lost. The least-squares scale holds the gain that a channel's outputs need, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rlx_edge.ir import Array
from rlx_edge.quant.assign import float_bias, float_weights
from rlx_edge.quant.layerwise import LayerInputs
from rlx_edge.quant.rounding import MOST_INPUTS, as_matrices, damped, descend, from_matrices, joint_moments, ridge
from rlx_edge.quant.schemes import BIAS_MAX, SMALLEST_SCALE, WEIGHT_MAX, QuantizedWeights, params_like, quantize_bias

BLOCK = 64
"""Weights rounded between two products with the rest of the matrix."""

FRACTIONS = {
    **{8: np.linspace(0.7, 1.0, 13), 4: np.linspace(0.4, 1.0, 13)},
    **{3: np.linspace(0.4, 1.0, 13), 2: np.linspace(0.1, 1.0, 19)},
}
"""By bits: the scales that are tried, as shares of the one at which the largest weight is the largest code."""

ROUNDS = 3
"""Turns of coordinate descent and least-squares scale."""

DAMPING = 0.03
"""Added to the diagonal of H, as a share of its mean: more than int8's rounding needs, as errors are larger."""

TRUST = 0.1
"""The same for W*: how far the float model's weights are held on to."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Find codes q and scales s with the least (s q - exact) moments (s q - exact)' for every output channel.

    exact: [groups, outputs, K]; moments: [groups, K, K], positive definite; least: the smallest scales [groups,
    outputs] that may be; most: the largest magnitude of a code; shared: all channels have one scale.
    """

    exact: Array
    moments: Array
    least: Array
    most: int
    shared: bool = False

    def together(self, values: Array, join: Callable[[Array], Array]) -> Array:
        """Values of each channel; where the scale is shared, what they are together."""
        return np.full_like(values, join(values)) if self.shared else values

    def error(self, codes: Array, scales: Array) -> Array:
        """What is to be lessened, [..., groups, outputs]."""
        difference = codes * scales[..., None] - self.exact
        return np.asarray(np.einsum("...k,...k->...", np.matmul(difference, self.moments), difference))

    def best_scales(self, codes: Array, scales: Array) -> Array:
        """The least-squares scales of codes; `scales` for channels that are all zeros."""
        weighed = np.matmul(codes, self.moments)
        power = self.together(np.einsum("gok,gok->go", weighed, codes), np.sum)
        aim = self.together(np.einsum("gok,gok->go", weighed, self.exact), np.sum)
        wanted = np.divide(aim, power, out=scales.copy(), where=power > 0)
        return np.where(wanted > 0, np.maximum(wanted, self.least), scales)


def compensate(inputs: LayerInputs, centered: bool = True) -> QuantizedWeights:
    """The layer with codes and scales for the inputs that it sees; the bias at the new scales.

    `centered` leaves the mean error out of account: bias correction takes it off afterwards.
    """
    anchor, layer = inputs.fusion.anchor, inputs.layer
    weights = float_weights(inputs.graph, inputs.fusion).astype(np.float64)
    exact = as_matrices(anchor, weights)
    if exact.shape[2] > MOST_INPUTS:
        return layer
    bias = float_bias(inputs.graph, inputs.fusion)
    least = np.maximum(np.abs(bias) / (inputs.operand_scale * BIAS_MAX), SMALLEST_SCALE).reshape(exact.shape[:2])
    moments, joint = joint_moments(inputs, centered)
    wanted = best_weights(exact, moments, joint)
    shared = layer.weight_params.axis is None
    least = np.full_like(least, least.max()) if shared else least
    problem = Problem(wanted, damped(moments, DAMPING) + tiny(moments), least, WEIGHT_MAX[layer.bits], shared)
    codes, scales = solve(problem, FRACTIONS[layer.bits])
    params = params_like(layer, scales)
    rounded = from_matrices(anchor, codes.astype(np.int8), layer.weights.shape)
    stored, bias_params = quantize_bias(bias, params, inputs.operand_scale)
    return replace(layer, weights=rounded, weight_params=params, bias=stored, bias_params=bias_params)


def best_weights(exact: Array, moments: Array, joint: Array) -> Array:
    """W* [groups, outputs, K]: the weights whose outputs on the quantized inputs are closest to those of `exact` on the
    float ones; joint: E[x0 x']."""
    hold = TRUST * ridge(moments) + tiny(moments)
    aim = np.matmul(exact, joint + hold)
    return np.linalg.solve(moments + hold, aim.transpose(0, 2, 1)).transpose(0, 2, 1)


def tiny(moments: Array) -> Array:
    """For inputs that are always 0: what keeps a matrix of zeros invertible."""
    return np.where(np.einsum("gkk->g", moments) > 0, 0.0, 1.0)[:, None, None] * np.eye(moments.shape[1])


def solve(problem: Problem, fractions: Array) -> tuple[Array, Array]:
    """Codes [groups, outputs, K] and scales [groups, outputs]; never worse than rounding to nearest."""
    largest = np.abs(problem.exact).max(axis=2)
    largest = problem.together(np.where(largest > 0, largest, largest.max() or 1.0) / problem.most, np.max)
    order, factor = elimination(problem.moments)
    best = np.full(largest.shape, np.inf)
    codes, scales = np.zeros_like(problem.exact), largest
    for fraction in fractions:
        tried = np.maximum(largest * fraction, problem.least)
        found = round_in_turn(problem.exact, tried, order, factor, problem.most)
        error = problem.together(problem.error(found, tried), np.sum)
        better = error < best
        best = np.where(better, error, best)
        codes, scales = np.where(better[..., None], found, codes), np.where(better, tried, scales)
    for _ in range(ROUNDS):
        codes = descend(problem.exact / scales[..., None], codes, problem.moments, problem.most)
        scales = problem.best_scales(codes, scales)
    codes = descend(problem.exact / scales[..., None], codes, problem.moments, problem.most)
    plain = np.maximum(largest, problem.least)
    nearest = np.clip(np.rint(problem.exact / plain[..., None]), -problem.most, problem.most)
    errors = (problem.together(problem.error(*found), np.sum) for found in ((codes, scales), (nearest, plain)))
    worse = np.greater(*errors)
    return np.where(worse[..., None], nearest, codes), np.where(worse, plain, scales)


def elimination(moments: Array) -> tuple[Array, Array]:
    """The order in which weights are rounded [groups, K], and in that order the upper factor U [groups, K, K] of the
    inverse U' U = moments^-1, whose row k says how the error of weight k is spread over the later ones."""
    order = np.argsort(-np.einsum("gkk->gk", moments), axis=1, kind="stable")
    sorted_moments = np.take_along_axis(np.take_along_axis(moments, order[:, :, None], 1), order[:, None, :], 2)
    backward = np.linalg.cholesky(sorted_moments[:, ::-1, ::-1])[:, ::-1, ::-1]  # upper: moments = R R'
    return order, np.linalg.inv(backward)


def round_in_turn(exact: Array, scales: Array, order: Array, factor: Array, most: int) -> Array:
    """Codes [groups, outputs, K] at these scales [groups, outputs], each error spread over the weights to come."""
    left = np.take_along_axis(exact, order[:, None, :], 2)
    codes = np.zeros_like(left)
    count = left.shape[2]
    for start in range(0, count, BLOCK):
        end = min(start + BLOCK, count)
        errors = np.zeros((*left.shape[:2], end - start))
        for k in range(start, end):
            code = np.clip(np.rint(left[:, :, k] / scales), -most, most)
            codes[:, :, k] = code
            error = (left[:, :, k] - code * scales) / factor[:, None, k, k]
            left[:, :, k + 1 : end] -= error[:, :, None] * factor[:, None, k, k + 1 : end]
            errors[:, :, k - start] = error
        left[:, :, end:] -= np.matmul(errors, factor[:, start:end, end:])
    back = np.empty_like(codes)
    np.put_along_axis(back, np.broadcast_to(order[:, None, :], codes.shape), codes, 2)
    return back
