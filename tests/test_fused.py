"""Fused ops against the graphs that they stand for, written with the ops that were there before, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import Array, DType, GraphBuilder, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    Conv,
    Expand,
    LayerNorm,
    MatMul,
    Narrow,
    Op,
    Reshape,
    RmsNorm,
)
from rlx_edge.ir.ops.fused import (
    FusedConvBiasAct,
    FusedMatMulBiasAct,
    FusedMatMulResidual,
    FusedResidualLN,
    FusedResidualRmsNorm,
    FusedSwiGLU,
)
from rlx_edge.reference import run

ADD, MUL = Binary(BinaryOp.ADD), Binary(BinaryOp.MUL)
ACTIVATIONS = st.sampled_from([None, ActivationFn.RELU, ActivationFn.GELU, ActivationFn.SILU, ActivationFn.TANH])
SEEDS = st.integers(0, 1 << 20)

Net = Callable[..., int]
"""Adds nodes: an op and the ids of its operands give the id of its result."""


def unfused(make: Callable[[Net, Sequence[int]], int], operands: Sequence[Array]) -> Array:
    """The value of a graph that `make` writes on these inputs."""
    builder = GraphBuilder("unfused")
    values = {f"x{i}": value for i, value in enumerate(operands)}
    inputs = [builder.input(name, TensorType(v.shape, DType.of(v))) for name, v in values.items()]
    last = make(lambda op, *read: builder.add(op, read, "node"), inputs)
    (result,) = run(builder.build([last]), values).values()
    return result


def activate(net: Net, fn: ActivationFn | None, x: int) -> int:
    return x if fn is None else net(Activation(fn), x)


def random(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@FEW
@given(st.booleans(), st.sampled_from([None, DType.F16, DType.F64]), SEEDS)
def test_swiglu(gate_first: bool, cast_to: DType | None, seed: int) -> None:
    def graph(net: Net, x: Sequence[int]) -> int:
        low, high = (net(Narrow(2, start, 3), x[0]) for start in (0, 3))
        up, gate = (high, low) if gate_first else (low, high)
        result = net(MUL, net(Activation(ActivationFn.SILU), gate), up)
        return result if cast_to is None else net(Cast(cast_to), result)

    x = random(seed, (2, 4, 6))
    np.testing.assert_array_equal(compute(FusedSwiGLU(cast_to, gate_first), *x), unfused(graph, x))


@FEW
@given(ACTIVATIONS, st.sampled_from([(), (3,)]), SEEDS)
def test_matrix_product_bias_activation(fn: ActivationFn | None, batch: tuple[int, ...], seed: int) -> None:
    x = random(seed, (*batch, 4, 5), (5, 6), (6,))
    found = compute(FusedMatMulBiasAct(fn), *x)
    expected = unfused(lambda net, x: activate(net, fn, net(ADD, net(MatMul(), x[0], x[1]), x[2])), x)
    np.testing.assert_array_equal(found, expected)


def test_matrix_product_residual() -> None:
    x = random(1, (4, 5), (5, 6), (4, 6))
    expected = unfused(lambda net, x: net(ADD, net(MatMul(), x[0], x[1]), x[2]), x)
    np.testing.assert_array_equal(compute(FusedMatMulResidual(), *x), expected)


@FEW
@given(ACTIVATIONS, st.booleans(), st.sampled_from([1, 2]), SEEDS)
def test_convolution_bias_activation(fn: ActivationFn | None, residual: bool, groups: int, seed: int) -> None:
    conv = Conv((3, 2), (2, 1), (1, 0), (1, 2), groups)
    shapes = [(2, 4, 6, 7), (6, 4 // groups, 3, 2), (6,), *[(2, 6, 3, 5)] * residual]

    def graph(net: Net, x: Sequence[int]) -> int:
        bias = net(Expand((2, 6, 3, 5)), net(Reshape((1, 6, 1, 1)), x[2]))
        total = net(ADD, net(conv, x[0], x[1]), bias)
        return activate(net, fn, net(ADD, total, x[3]) if residual else total)

    op = FusedConvBiasAct(conv.kernel_size, conv.stride, conv.padding, conv.dilation, groups, fn, residual)
    x = random(seed, *shapes)
    np.testing.assert_array_equal(compute(op, *x), unfused(graph, x))


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("fused", [FusedResidualLN, FusedResidualRmsNorm])
def test_residual_and_norm(fused: Callable[[bool, float], Op], has_bias: bool) -> None:
    def graph(net: Net, x: Sequence[int]) -> int:
        *terms, gamma, beta = x
        total = net(ADD, terms[0], terms[1])
        if has_bias:
            total = net(ADD, total, terms[2])
        return net((LayerNorm if fused is FusedResidualLN else RmsNorm)(-1, 1e-5), total, gamma, beta)

    x = random(2, *[(2, 3, 5)] * 2, *[(5,)] * (2 + has_bias))
    np.testing.assert_array_equal(compute(fused(has_bias, 1e-5), *x), unfused(graph, x))


def test_what_the_parts_cannot_compute_is_refused_by_name() -> None:
    halves = [x.astype(np.float16) for x in random(3, (4, 5), (5, 6), (4, 6))]
    with pytest.raises(UnsupportedError, match="no MatMul on f16"):
        compute(FusedMatMulResidual(), *halves)
