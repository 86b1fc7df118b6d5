"""Several elementwise steps, or several resampling steps, as one op."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, ShapeError, broadcast_shapes, exact
from rlx_edge.ir.ops.checks import require
from rlx_edge.ir.ops.elementwise import Activation, ActivationFn, Binary, BinaryOp, Cast, Compare, Where
from rlx_edge.ir.ops.rust_text import debug
from rlx_edge.ir.ops.volumes import ResizeNearest2x
from rlx_edge.ir.tensor import Shape, TensorType

STEP_KINDS: tuple[type[Op], ...] = (Activation, Cast, Binary, Compare, Where)
"""The steps of an elementwise chain."""

TRANSFORM_KINDS: tuple[type[Op], ...] = (ResizeNearest2x,)
"""The steps of a transform region."""

IN_REGIONS: tuple[ActivationFn | BinaryOp, ...] = (
    *(ActivationFn.GELU, ActivationFn.GELU_APPROX, ActivationFn.SILU, ActivationFn.RELU, ActivationFn.SIGMOID),
    *(ActivationFn.TANH, ActivationFn.EXP, ActivationFn.LOG, ActivationFn.SQRT, ActivationFn.RSQRT, ActivationFn.NEG),
    *(ActivationFn.ABS, ActivationFn.SIN, ActivationFn.COS, ActivationFn.TAN, ActivationFn.ATAN, ActivationFn.RECIP),
    ActivationFn.ROUND,
    *(BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.MAX, BinaryOp.MIN, BinaryOp.POW),
)
"""Functions that the vocabulary allows in a region; RLX's kernels would compute others wrongly."""

MODULI = 16
"""Entries of `input_modulus`, and so the most inputs of a region."""


class Source(Enum):
    """What an operand of a step is; the values are the names of the vocabulary's ChainOperand."""

    INPUT = "Input"
    STEP = "Step"


@dataclass(frozen=True)
class ChainOperand:
    """An input of the region, or the result of an earlier step, by its index."""

    source: Source
    index: int


@dataclass(frozen=True)
class ChainStep:
    """One op of a region, applied to its operands. The vocabulary's steps are its ops of the same names."""

    op: Op
    operands: tuple[ChainOperand, ...]


class RegionPrologue(Enum):
    """What happens to one input before the chain; the values are the vocabulary's names."""

    NONE = "None"
    RESIZE_NEAREST_2X = "ResizeNearest2x"


@dataclass(frozen=True)
class ElementwiseRegion(Op):
    """A chain of elementwise steps; the last one's result is the output. It is typed as the same ops by themselves.

    `input_modulus[i]`: 0 for an input of as many elements as the output, else how many it has; these repeat, row by
    row, and must divide the output. Bit i of `scalar_input_mask` marks an input of one element. The `prologue` applies
    to the input `prologue_input`. Ours: inputs of modulus 0, broadcast, give the output's shape; there must be one.
    """

    chain: tuple[ChainStep, ...]
    num_inputs: int
    scalar_input_mask: int
    input_modulus: tuple[int, ...]
    prologue: RegionPrologue = RegionPrologue.NONE
    prologue_input: int = 0

    @property
    def arity(self) -> Arity:
        return exact(self.num_inputs)

    def display(self) -> str:
        mask = f",scalar_mask=0x{self.scalar_input_mask:x}" if self.scalar_input_mask else ""
        prologue = "" if self.prologue is RegionPrologue.NONE else ",prologue=resize2x"
        return f"ew_region(in={self.num_inputs},steps={len(self.chain)}{mask}{prologue})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        require(self.num_inputs <= MODULI and len(self.input_modulus) == MODULI, f"more than {MODULI} inputs or moduli")
        inputs = after_prologue(self.prologue, self.prologue_input, operands)
        shape: Shape | None = None
        for index, operand in enumerate(inputs):
            if not self.modulus(index):
                shape = operand.shape if shape is None else broadcast_shapes(shape, operand.shape)
        if shape is None:
            raise ShapeError("no input has the output's shape: each one repeats")
        for index, operand in enumerate(inputs):
            wanted = self.modulus(index) or math.prod(shape)
            fits = operand.elements == wanted and math.prod(shape) % wanted == 0
            require(fits, f"input {index} is {operand}; {wanted} elements, which divide {list(shape)}, are needed")
        return shape, chain_type(self.chain, STEP_KINDS, [TensorType(shape, x.dtype) for x in inputs]).dtype

    def modulus(self, index: int) -> int:
        """How many elements of the input repeat; 0: none do."""
        return 1 if self.scalar_input_mask >> index & 1 else self.input_modulus[index]


@dataclass(frozen=True)
class TransformRegion(Op):
    """A chain of resampling steps; the last one's result is the output."""

    steps: tuple[ChainStep, ...]
    num_inputs: int

    @property
    def arity(self) -> Arity:
        return exact(self.num_inputs)

    def display(self) -> str:
        return f"transform_region(in={self.num_inputs},steps={len(self.steps)})"

    def infer(self, operands: Sequence[TensorType]) -> tuple[Shape, DType]:
        result = chain_type(self.steps, TRANSFORM_KINDS, operands)
        return result.shape, result.dtype


@dataclass(frozen=True)
class BatchElementwiseRegion(Declared):
    """One chain, with one input, over several tensors of one shape.

    The vocabulary does not say how the results are joined. Ours: one after the other, in the shape that is declared,
    be it [k, ..] for k tensors or the first axis k times as long; and no element repeats, so mask and moduli are 0.
    """

    chain: tuple[ChainStep, ...]
    num_batch_inputs: int
    scalar_input_mask: int
    input_modulus: tuple[int, ...]
    prologue: RegionPrologue = RegionPrologue.NONE
    prologue_input: int = 0

    @property
    def arity(self) -> Arity:
        return exact(self.num_batch_inputs)

    def display(self) -> str:
        return (
            f"batch_ew_region(batch={self.num_batch_inputs},steps={len(self.chain)},"
            f"mask=0x{self.scalar_input_mask:x},prologue={debug(self.prologue)})"
        )

    def check(self, operands: Sequence[TensorType], out: TensorType) -> None:
        require(
            not self.scalar_input_mask and not any(self.input_modulus), "elements that repeat in a batch of tensors"
        )
        require(self.prologue_input == 0, f"a prologue of input {self.prologue_input}; a chain over a batch has one")
        shapes = {(operand.shape, operand.dtype) for operand in operands}
        require(len(shapes) == 1, f"{len(shapes)} types of tensors; a batch has one")
        (one,) = after_prologue(self.prologue, 0, operands[:1])
        dtype = chain_type(self.chain, STEP_KINDS, [one]).dtype
        fits = out.dtype == dtype and out.elements == len(operands) * one.elements
        require(fits, f"declared {out} for {len(operands)} results of {dtype.value}{list(one.shape)}")


def after_prologue(prologue: RegionPrologue, index: int, operands: Sequence[TensorType]) -> list[TensorType]:
    """The operands as the chain sees them."""
    if prologue is RegionPrologue.NONE:
        return list(operands)
    require(0 <= index < len(operands), f"a prologue of input {index} of {len(operands)}")
    resized = TensorType(*ResizeNearest2x().infer([operands[index]]))
    return [resized if i == index else operand for i, operand in enumerate(operands)]


def chain_type(chain: Sequence[ChainStep], kinds: tuple[type[Op], ...], inputs: Sequence[TensorType]) -> TensorType:
    """What the last step gives. Raises ShapeError for a step of another kind, or operands that do not fit."""
    require(bool(chain), "a region without steps")
    results: list[TensorType] = []
    for number, step in enumerate(chain):
        found: list[TensorType] = []
        for operand in step.operands:
            held = inputs if operand.source is Source.INPUT else results
            require(0 <= operand.index < len(held), f"step {number} reads {operand.source.value} {operand.index}")
            found.append(held[operand.index])
        try:
            results.append(_step_type(step.op, kinds, found))
        except ShapeError as error:
            raise ShapeError(f"step {number}, {step.op.kind_name}: {error}") from None
    return results[-1]


def _step_type(op: Op, kinds: tuple[type[Op], ...], operands: list[TensorType]) -> TensorType:
    require(isinstance(op, kinds), f"not one of {', '.join(kind.__name__ for kind in kinds)}")
    require(op.arity.accepts(len(operands)), f"{len(operands)} operands where {op.arity} are needed")
    if isinstance(op, Activation | Binary):
        require(op.fn in IN_REGIONS, f"{op.fn.value} has no place in a region")
    if isinstance(op, Where):  # In a chain, a condition holds where it is not 0, whatever its dtype.
        operands = [TensorType(operands[0].shape, DType.BOOL), *operands[1:]]
    return TensorType(*op.infer(operands))


KINDS: tuple[type[Op], ...] = (ElementwiseRegion, TransformRegion, BatchElementwiseRegion)
