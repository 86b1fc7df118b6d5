"""What regions of several steps mean: each step computed as the same op by itself, so that both give the same bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.ir import Array, TensorType
from rlx_edge.ir.ops import Op, Where
from rlx_edge.ir.ops.regions import (
    BatchElementwiseRegion,
    ChainStep,
    ElementwiseRegion,
    RegionPrologue,
    Source,
    TransformRegion,
)
from rlx_edge.ir.ops.volumes import ResizeNearest2x
from rlx_edge.reference.compose import apply
from rlx_edge.reference.further import OpFunction
from rlx_edge.reference.volumes import double

Types = Sequence[TensorType]


def elementwise_region(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, ElementwiseRegion)
    inputs = list(x)
    if op.prologue is RegionPrologue.RESIZE_NEAREST_2X:
        inputs[op.prologue_input] = double(inputs[op.prologue_input])
    return _chain(op.chain, [_repeated(value, out) for value in inputs])


def transform_region(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, TransformRegion)
    return _chain(op.steps, x)


def batch_elementwise_region(op: Op, x: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, BatchElementwiseRegion)
    resized = op.prologue is RegionPrologue.RESIZE_NEAREST_2X
    results = [_chain(op.chain, [double(value) if resized else value]) for value in x]
    return np.stack(results).reshape(out.shape)


def _chain(chain: Sequence[ChainStep], inputs: Sequence[Array]) -> Array:
    results: list[Array] = []
    for step in chain:
        operands = [(inputs if o.source is Source.INPUT else results)[o.index] for o in step.operands]
        if isinstance(step.op, Where):
            operands[0] = operands[0] != 0
        results.append(double(operands[0]) if isinstance(step.op, ResizeNearest2x) else apply(step.op, *operands))
    return results[-1]


def _repeated(value: Array, out: TensorType) -> Array:
    """Elements in row-major order, again and again, in the output's shape."""
    return np.resize(value, out.shape)


FUNCTIONS: dict[type[Op], OpFunction] = {
    ElementwiseRegion: elementwise_region,
    TransformRegion: transform_region,
    BatchElementwiseRegion: batch_elementwise_region,
}

ON_CODES: dict[type[Op], OpFunction] = {TransformRegion: transform_region}
