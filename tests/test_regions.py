"""Regions against the graphs of single ops that they stand for, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_op import FEW, compute

from rlx_edge.ir import Array, DType, GraphBuilder, TensorType
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Cast,
    CmpOp,
    Compare,
    Op,
    ShapeError,
    Tile,
    Where,
)
from rlx_edge.ir.ops.regions import (
    IN_REGIONS,
    BatchElementwiseRegion,
    ChainOperand,
    ChainStep,
    ElementwiseRegion,
    RegionPrologue,
    Source,
    TransformRegion,
)
from rlx_edge.ir.ops.volumes import ResizeNearest2x
from rlx_edge.reference import run

INPUTS = [((4, 3), 0), ((1,), 1), ((3,), 3), ((2, 3), 6), ((1, 4, 3), 0)]
"""Shapes beside an output of [.., 4, 3], and what repeats of them."""

UNARY = [fn for fn in IN_REGIONS if isinstance(fn, ActivationFn)]
BINARY = [fn for fn in IN_REGIONS if isinstance(fn, BinaryOp)]


def read(number: int) -> ChainOperand:
    return ChainOperand(Source.INPUT, number)


def step(number: int) -> ChainOperand:
    return ChainOperand(Source.STEP, number)


def moduli(*used: int) -> tuple[int, ...]:
    return (*used, *[0] * (16 - len(used)))


RELU = ChainStep(Activation(ActivationFn.RELU), (read(0),))
RESIZED = RegionPrologue.RESIZE_NEAREST_2X


@FEW
@given(st.data())
def test_chains_are_their_unfused_graphs(data: st.DataObject) -> None:
    """Steps drawn one after the other, and the same ops put into a graph, where inputs that repeat are tiled."""
    kinds = [INPUTS[0], *data.draw(st.lists(st.sampled_from(INPUTS), max_size=3))]
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    values = {f"x{i}": random.normal(size=shape).astype(np.float32) for i, (shape, _) in enumerate(kinds)}
    builder = GraphBuilder("unfused")
    given_as = [builder.input(name, TensorType(v.shape, DType.F32)) for name, v in values.items()]
    tiled = [
        builder.add(Tile((2, 1)), [n], "t") if shape == (2, 3) else n
        for n, (shape, _) in zip(given_as, kinds, strict=True)
    ]
    held: list[tuple[ChainOperand, int]] = [(read(i), node) for i, node in enumerate(tiled)]
    chain: list[ChainStep] = []
    pick = lambda dtype: data.draw(st.sampled_from([h for h in held if builder[h[1]].type.dtype is dtype]))  # noqa: E731
    ops = [
        *(
            st.sampled_from(UNARY).map(Activation),
            st.sampled_from(BINARY).map(Binary),
            st.sampled_from(BINARY).map(Binary),
        ),
        *(st.sampled_from(CmpOp).map(Compare), st.just(Where()), st.just(Cast(DType.F32))),
    ]
    for number in range(data.draw(st.integers(1, 6))):
        conditions = any(builder[node].type.dtype is DType.BOOL for _, node in held)
        op: Op = data.draw(st.one_of(ops if conditions else ops[:4]))
        wanted = [DType.F32] * op.arity.low
        if isinstance(op, Where | Cast):
            wanted[0] = DType.BOOL
        operands = [pick(dtype) for dtype in wanted]
        chain.append(ChainStep(op, tuple(operand for operand, _ in operands)))
        held.append((step(number), builder.add(op, [node for _, node in operands], "s")))
    scalars = sum(1 << i for i, (_, modulus) in enumerate(kinds) if modulus == 1)
    region = ElementwiseRegion(
        tuple(chain), len(kinds), data.draw(st.sampled_from([0, scalars])), moduli(*(m for _, m in kinds))
    )
    (expected,) = run(builder.build([held[-1][1]]), values).values()
    found = compute(region, *values.values())
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


def test_a_condition_holds_where_it_is_not_zero() -> None:
    chosen = ChainStep(Where(), (read(0), read(1), read(2)))
    x = [np.array(v, np.float32) for v in ([0.25, 0.0, -0.0, np.nan], [1, 2, 3, 4], [5, 6, 7, 8])]
    assert compute(ElementwiseRegion((chosen,), 3, 0, moduli()), *x).tolist() == [1, 6, 7, 4]


def doubled(x: Array) -> Array:
    return np.asarray(np.kron(x, np.ones((2, 2), np.float32)))


def test_a_prologue_resizes_its_input_alone() -> None:
    small, large = (np.random.default_rng(3).normal(size=(1, 2, *size)).astype(np.float32) for size in ((2, 3), (4, 6)))
    total = ChainStep(Binary(BinaryOp.SUB), (read(0), read(1)))
    found = compute(ElementwiseRegion((total,), 2, 0, moduli(), RESIZED, 1), large, small)
    np.testing.assert_array_equal(found, large - doubled(small))


def test_transforms_follow_each_other() -> None:
    x = np.random.default_rng(4).normal(size=(1, 2, 2, 3)).astype(np.float32)
    steps = (ChainStep(ResizeNearest2x(), (read(0),)), ChainStep(ResizeNearest2x(), (step(0),)))
    np.testing.assert_array_equal(compute(TransformRegion(steps, 1), x), doubled(doubled(x)))


@pytest.mark.parametrize("prologue", RegionPrologue, ids=lambda p: p.value)
def test_a_batch_is_its_slices_one_after_the_other(prologue: RegionPrologue) -> None:
    slices = np.random.default_rng(5).normal(size=(3, 1, 2, 2, 3)).astype(np.float32)
    op = BatchElementwiseRegion((RELU,), 3, 0, moduli(), prologue)
    expected = np.maximum(slices, 0)
    if prologue is RESIZED:
        expected = doubled(expected)
    for shape in (expected.shape, (3, *expected.shape[2:])):
        found = compute(op, *slices, out=TensorType(shape, DType.F32))
        np.testing.assert_array_equal(found, expected.reshape(shape))


F32 = TensorType((4, 3), DType.F32)
MISFITS: list[tuple[Op, list[TensorType], str]] = [
    (ElementwiseRegion((), 1, 0, moduli()), [F32], "without steps"),
    (ElementwiseRegion((RELU,), 1, 0, (0,)), [F32], "16"),
    (ElementwiseRegion((RELU,), 1, 0, moduli(5)), [F32], "no input has the output's shape"),
    (ElementwiseRegion((RELU,), 2, 0, moduli(0, 5)), [F32, TensorType((5,), DType.F32)], "input 1"),
    (ElementwiseRegion((RELU,), 2, 2, moduli()), [F32, F32], "1 elements"),
    (ElementwiseRegion((RELU,), 1, 0, moduli(), RESIZED), [F32], "rank 4"),
    (ElementwiseRegion((RELU,), 1, 0, moduli(), RESIZED, 1), [F32], "prologue of input 1"),
    (ElementwiseRegion((ChainStep(Activation(ActivationFn.FLOOR), (read(0),)),), 1, 0, moduli()), [F32], "no place"),
    (
        ElementwiseRegion((ChainStep(Activation(ActivationFn.RELU), (step(0),)),), 1, 0, moduli()),
        [F32],
        "step 0 reads Step 0",
    ),
    (
        ElementwiseRegion((ChainStep(Activation(ActivationFn.RELU), (read(1),)),), 1, 0, moduli()),
        [F32],
        "reads Input 1",
    ),
    (
        ElementwiseRegion((ChainStep(Binary(BinaryOp.ADD), (read(0),)),), 1, 0, moduli()),
        [F32],
        "step 0, Binary: 1 operands",
    ),
    (ElementwiseRegion((ChainStep(ResizeNearest2x(), (read(0),)),), 1, 0, moduli()), [F32], "not one of Activation"),
    (TransformRegion((RELU,), 1), [F32], "not one of ResizeNearest2x"),
    (BatchElementwiseRegion((RELU,), 2, 0, moduli()), [F32, TensorType((3, 4), DType.F32)], "2 types"),
    (BatchElementwiseRegion((RELU,), 2, 0, moduli(0, 1)), [F32, F32], "repeat"),
    (BatchElementwiseRegion((RELU,), 2, 0, moduli()), [F32, F32], "declared"),
]


@pytest.mark.parametrize(("op", "operands", "message"), MISFITS, ids=[m[2] for m in MISFITS])
def test_what_does_not_fit(op: Op, operands: list[TensorType], message: str) -> None:
    builder = GraphBuilder("misfit")
    inputs = [builder.input("x", type) for type in operands]
    with pytest.raises(ShapeError, match=message):
        builder.add(op, inputs, "y", type=TensorType((1, 1), DType.F32))
