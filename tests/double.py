"""A float graph run in float64 throughout, with how much each value may move when constants are rounded to float32.

Passes fold constants in float64 and round them once. So a graph before and after a pass differs by at most a few units
of 2^-24 of `magnitude`: what the value would be if every operand and every constant were its absolute value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import (
    Activation,
    Binary,
    BinaryOp,
    Clamp,
    Conv,
    Input,
    LayerNorm,
    MatMul,
    Op,
    Pad,
    Pool,
    Reduce,
    ReduceOp,
    RmsNorm,
    Softmax,
)
from rlx_edge.reference.floating import window_counts
from rlx_edge.reference.run import evaluate
from rlx_edge.reference.unary import apply
from rlx_edge.reference.windows import correlate, from_nhwc, to_nhwc, windows

UNIT = 2.0**-24
"""Half the distance of float32 neighbors, relative: one rounding."""


@dataclass(frozen=True)
class Wide:
    """Values and magnitudes, float64."""

    value: Array
    magnitude: Array


def run_double(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Wide]:
    """The outputs by name. Kinds without a form here must only move elements."""
    held: dict[int, Wide] = {}
    for node in graph.nodes:
        known = inputs[node.name] if isinstance(node.op, Input) else graph.constant(node)
        if known is not None:
            wide = known.astype(np.float64) if known.dtype.kind == "f" else known
            held[node.id] = Wide(wide, np.abs(wide))
        else:
            held[node.id] = _evaluate(graph, node, [held[i] for i in node.inputs])
    return {node.name: held[node.id] for node in graph.output_nodes}


def _evaluate(graph: Graph, node: Node, x: Sequence[Wide]) -> Wide:
    function = _FUNCTIONS.get(type(node.op))
    with np.errstate(all="ignore"):
        if function is not None:
            return function(node.op, x)
        value = evaluate(graph, node, [each.value for each in x])
        return Wide(value, evaluate(graph, node, [each.magnitude for each in x]))


def _conv_sums(op: Conv, x: Array, w: Array) -> Array:
    return from_nhwc(
        correlate(windows(to_nhwc(x, op.layout), op, 0.0, op.dilation), to_nhwc(w, op.layout), op.groups), op.layout
    )


def _conv(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Conv)
    return Wide(_conv_sums(op, x[0].value, x[1].value), _conv_sums(op, x[0].magnitude, x[1].magnitude))


def _matmul(op: Op, x: Sequence[Wide]) -> Wide:
    return Wide(x[0].value @ x[1].value, x[0].magnitude @ x[1].magnitude)


def _binary(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Binary)
    (a, ma), (b, mb) = ((each.value, each.magnitude) for each in x)
    if op.fn is BinaryOp.MUL:
        return Wide(a * b, ma * mb)
    if op.fn is BinaryOp.DIV:
        return Wide(a / b, ma / np.abs(b) * (mb / np.abs(b)))
    if op.fn is BinaryOp.POW:
        return Wide(a**b, ma**b * np.maximum(1.0, np.abs(b)))
    known = {BinaryOp.ADD: np.add, BinaryOp.SUB: np.subtract, BinaryOp.MAX: np.maximum, BinaryOp.MIN: np.minimum}
    return Wide(known[op.fn](a, b), ma + mb)


def _activation(op: Op, x: Sequence[Wide]) -> Wide:
    """The slopes of those that graphs of tests have are below 1.5."""
    assert isinstance(op, Activation)
    value = apply(op.fn, x[0].value, op.alpha)
    return Wide(value, np.maximum(1.5 * x[0].magnitude, np.abs(value)))


def _clamp(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Clamp)
    value = np.clip(x[0].value, np.float32(op.min), np.float32(op.max))
    return Wide(value, np.maximum(x[0].magnitude, np.abs(value)))


def _pool(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Pool)

    def pooled(image: Array, fill: float) -> Array:
        image = to_nhwc(image, op.layout)
        held = windows(image, op, fill)
        if op.kind is ReduceOp.MAX:
            return from_nhwc(held.max(axis=(3, 4)), op.layout)
        return from_nhwc(held.sum(axis=(3, 4)) / window_counts(op, image), op.layout)

    return Wide(pooled(x[0].value, -np.inf if op.kind is ReduceOp.MAX else 0.0), pooled(x[0].magnitude, 0.0))


def _reduce(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Reduce)
    functions: dict[ReduceOp, Callable[..., Array]] = {
        ReduceOp.SUM: np.sum,
        ReduceOp.MEAN: np.mean,
        ReduceOp.MAX: np.max,
    }
    value, magnitude = (functions[op.op](a, axis=op.axes, keepdims=op.keep_dim) for a in (x[0].value, x[0].magnitude))
    return Wide(value, magnitude)


def _softmax(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Softmax)
    powers = np.exp(x[0].value - x[0].value.max(axis=op.axis, keepdims=True))
    value = powers / powers.sum(axis=op.axis, keepdims=True)
    return Wide(value, np.broadcast_to(2.0 * x[0].magnitude.max(axis=op.axis, keepdims=True), value.shape))


def _layer_norm(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, LayerNorm)
    along = [1] * x[0].value.ndim
    along[op.axis] = -1
    gamma, beta = (each.value.reshape(along) for each in x[1:])
    mean, variance = (f(x[0].value, axis=op.axis, keepdims=True) for f in (np.mean, np.var))
    root = np.sqrt(variance + op.eps)
    value = gamma * (x[0].value - mean) / root + beta
    return Wide(value, np.abs(beta) + np.abs(gamma) * (x[0].magnitude + np.abs(mean)) / root)


def _rms_norm(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, RmsNorm)
    along = [1] * x[0].value.ndim
    along[op.axis] = -1
    factor = x[1].value.reshape(along) / np.sqrt(np.mean(x[0].value ** 2, axis=op.axis, keepdims=True) + op.eps)
    beta = sum((each.value.reshape(along) for each in x[2:]), start=np.zeros(()))
    return Wide(x[0].value * factor + beta, x[0].magnitude * np.abs(factor) + np.abs(beta))


def _pad(op: Op, x: Sequence[Wide]) -> Wide:
    assert isinstance(op, Pad)
    value = np.pad(x[0].value, op.pads, constant_values=np.float32(op.value))
    fill = abs(op.value) if np.isfinite(op.value) else 0.0
    return Wide(value, np.pad(x[0].magnitude, op.pads, constant_values=fill))


_FUNCTIONS: dict[type[Op], Callable[[Op, Sequence[Wide]], Wide]] = {
    Conv: _conv,
    MatMul: _matmul,
    Binary: _binary,
    Activation: _activation,
    Clamp: _clamp,
    Pool: _pool,
    Reduce: _reduce,
    Softmax: _softmax,
    LayerNorm: _layer_norm,
    RmsNorm: _rms_norm,
    Pad: _pad,
}


def check_within_rounding(before: Graph, after: Graph, inputs: Mapping[str, Array], units: float | None = None) -> None:
    """Outputs of both in float64 differ by at most `units` roundings of their magnitude; the default is one a node."""
    expected, found = run_double(before, inputs), run_double(after, inputs)
    assert list(found) == list(expected)
    limit = (len(before.nodes) if units is None else units) * UNIT
    for name, wide in expected.items():
        assert found[name].value.shape == wide.value.shape
        room = limit * np.maximum(wide.magnitude, found[name].magnitude)
        with np.errstate(invalid="ignore"):
            apart = np.where(found[name].value == wide.value, 0.0, np.abs(found[name].value - wide.value))
        assert bool((apart <= room).all()), f"{name}: {apart.max():.3g} apart, {(apart / room).max():.3g} times too far"
