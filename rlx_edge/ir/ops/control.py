"""Control flow, and bodies and ops of users. A nested graph's inputs are bound by position, as they were made.

Ours, where the vocabulary leaves it open: a node has one output tensor, so that of several outputs or carried values
only the first one is seen outside. A nested graph uses nothing but its inputs and its own parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.dtype import DType
from rlx_edge.ir.ops.base import Arity, Declared, Op, ShapeError, at_least, exact
from rlx_edge.ir.tensor import Shape, TensorType

if TYPE_CHECKING:
    from rlx_edge.ir.graph import Graph

Types = Sequence[TensorType]


class Nested(Op):
    """An op that runs nested graphs."""

    def body_inputs(self, operands: Types) -> Mapping[str, Types]:
        """The types of the inputs of each nested graph that is run, by field. Raises ShapeError."""
        raise NotImplementedError

    def result(self, operands: Types) -> TensorType:
        """The type of the output, of bodies whose inputs fit. Raises ShapeError."""
        raise NotImplementedError

    def infer(self, operands: Types) -> tuple[Shape, DType]:
        for name, wanted in self.body_inputs(operands).items():
            _check_types(f"{name} has inputs", [node.type for node in getattr(self, name).inputs], wanted)
        type = self.result(operands)
        return type.shape, type.dtype

    def check(self, operands: Types, out: TensorType) -> None:
        super().check(operands, out)
        if out.quant != self.result(operands).quant:
            raise ShapeError(f"declared {out}, but its body gives {self.result(operands)}")


@dataclass(frozen=True)
class If(Nested):
    """Operands predicate (bool, one element), captures...: what one of two graphs makes of the captures."""

    operand_count: ClassVar[Arity] = at_least(1)
    text: ClassVar[str] = "if(...)"
    bodies: ClassVar[tuple[str, ...]] = ("then_branch", "else_branch")
    then_branch: Graph
    else_branch: Graph

    def body_inputs(self, operands: Types) -> Mapping[str, Types]:
        _check_condition("the predicate", operands[0])
        return dict.fromkeys(self.bodies, operands[1:])

    def result(self, operands: Types) -> TensorType:
        made = _outputs(self.then_branch)
        _check_types("else_branch gives", _outputs(self.else_branch), made)
        return _first(made)

    def macs(self, operands: Types, out: TensorType) -> int:
        """Those of the larger branch."""
        return max(body.total_macs for body in self.subgraphs)


@dataclass(frozen=True)
class While(Nested):
    """Operands: the values carried. While `cond` of them gives true, `body` makes the next ones; ours: the output is
    the first of the last ones, and a loop that `max_iterations` ends gives what it has."""

    operand_count: ClassVar[Arity] = at_least(0)
    bodies: ClassVar[tuple[str, ...]] = ("cond", "body")
    cond: Graph
    body: Graph
    max_iterations: int | None

    def display(self) -> str:
        return "while(...)" if self.max_iterations is None else f"while(...max={self.max_iterations})"

    def body_inputs(self, operands: Types) -> Mapping[str, Types]:
        return dict.fromkeys(self.bodies, operands)

    def result(self, operands: Types) -> TensorType:
        made = _outputs(self.cond)
        if len(made) != 1:
            raise ShapeError(f"cond has {len(made)} outputs; one bool is needed")
        _check_condition("the output of cond", made[0])
        _check_types("body gives", _outputs(self.body), operands)
        return _first(operands)

    def macs(self, operands: Types, out: TensorType) -> int:
        """Those of `max_iterations`; of one iteration where there is no bound."""
        return (self.max_iterations or 1) * sum(body.total_macs for body in self.subgraphs)


@dataclass(frozen=True)
class Scan(Nested):
    """Operands init, bcast..., xs... [length, ..]: `body` of (carry, bcast..., a row of each xs) gives the next carry.

    The output is the last carry; with `save_trajectory` all carries [length, ..], or their rows floor(t * length / K)
    for t below K = `num_checkpoints`, where that is neither 0 nor length.
    """

    bodies: ClassVar[tuple[str, ...]] = ("body",)
    body: Graph
    length: int
    save_trajectory: bool
    num_bcast: int
    num_xs: int
    num_checkpoints: int

    @property
    def arity(self) -> Arity:
        return exact(1 + self.num_bcast + self.num_xs)

    def display(self) -> str:
        return f"scan(len={self.length}{_xs(self.num_xs)}{_traj(self.save_trajectory)})"

    def body_inputs(self, operands: Types) -> Mapping[str, Types]:
        held = 1 + self.num_bcast
        rows = [_row(xs, self.length, f"xs {i}") for i, xs in enumerate(operands[held:])]
        return {"body": (*operands[:held], *rows)}

    def result(self, operands: Types) -> TensorType:
        made, carry = _outputs(self.body), operands[0]
        _check_types("body gives", made, (carry,))
        return _stacked(carry, saved_rows(self)) if self.save_trajectory else carry

    def macs(self, operands: Types, out: TensorType) -> int:
        return self.length * self.body.total_macs


@dataclass(frozen=True)
class ScanBackward(Op):
    """Operands init, trajectory, upstream, xs...: the gradient of a Scan for init.

    `body_vjp` takes carry, a row of each xs and "d_output", and gives dcarry and a dx for each xs. With fewer
    checkpoints than steps `forward_body` is needed.
    """

    bodies: ClassVar[tuple[str, ...]] = ("body_vjp", "forward_body")
    body_vjp: Graph
    length: int
    save_trajectory: bool
    num_xs: int
    num_checkpoints: int
    forward_body: Graph | None

    @property
    def arity(self) -> Arity:
        return exact(3 + self.num_xs)

    def display(self) -> str:
        return f"scan_bwd(len={self.length}{_xs(self.num_xs)}{_traj(self.save_trajectory)})"

    def infer(self, operands: Types) -> tuple[Shape, DType]:
        _check_backward(self, operands)
        return operands[0].shape, operands[0].dtype


@dataclass(frozen=True)
class ScanBackwardXs(Op):
    """Operands and bodies as those of ScanBackward: the gradient for xs number `xs_idx`, [length, ..] as that is."""

    bodies: ClassVar[tuple[str, ...]] = ("body_vjp", "forward_body")
    body_vjp: Graph
    length: int
    save_trajectory: bool
    num_xs: int
    xs_idx: int
    num_checkpoints: int
    forward_body: Graph | None

    @property
    def arity(self) -> Arity:
        return exact(3 + self.num_xs)

    def display(self) -> str:
        return f"scan_bwd_xs(len={self.length},xs={self.num_xs},idx={self.xs_idx}{_traj(self.save_trajectory)})"

    def infer(self, operands: Types) -> tuple[Shape, DType]:
        _check_backward(self, operands)
        if not 0 <= self.xs_idx < self.num_xs:
            raise ShapeError(f"xs_idx {self.xs_idx} of {self.num_xs} xs")
        xs = operands[3 + self.xs_idx]
        return xs.shape, xs.dtype


@dataclass(frozen=True)
class Custom(Declared):
    """An op that a user registers (`rlx_edge.ir.custom`). The output's type is declared where it is not registered."""

    name: str
    num_inputs: int
    attrs: bytes

    @property
    def arity(self) -> Arity:
        return exact(self.num_inputs)

    def display(self) -> str:
        return f"custom({self.name},in={self.num_inputs},attrs={len(self.attrs)}B)"

    def infer(self, operands: Types) -> tuple[Shape, DType]:
        registered = find_custom(self.name)
        if registered is None:
            raise ShapeError(f"the custom op {self.name!r} is not registered, so its output's type must be declared")
        return registered.output(self, operands)

    def check(self, operands: Types, out: TensorType) -> None:
        if find_custom(self.name) is not None:
            Op.check(self, operands, out)


@dataclass(frozen=True)
class CustomFn(Nested):
    """`fwd_body` of the operands.

    Its gradients, where they are given: `vjp_body` (the operands, "primal_output", "d_output") and `jvp_body` (the
    operands, "tangent_0".., perhaps "primal_output").
    """

    bodies: ClassVar[tuple[str, ...]] = ("fwd_body", "vjp_body", "jvp_body")
    fwd_body: Graph
    vjp_body: Graph | None
    jvp_body: Graph | None
    num_inputs: int

    @property
    def arity(self) -> Arity:
        return exact(self.num_inputs)

    def display(self) -> str:
        given = (",vjp" if self.vjp_body else "") + (",jvp" if self.jvp_body else "")
        return f"custom_fn(in={self.num_inputs}{given})"

    def body_inputs(self, operands: Types) -> Mapping[str, Types]:
        return {"fwd_body": operands}

    def result(self, operands: Types) -> TensorType:
        made = _outputs(self.fwd_body)
        if len(made) != 1:
            raise ShapeError(f"fwd_body has {len(made)} outputs; one is needed")
        count = self.num_inputs
        if self.vjp_body is not None:
            _check_counts("vjp_body", self.vjp_body, {"primal_output", "d_output"}, count, count)
        if self.jvp_body is not None:
            names = {node.name for node in self.jvp_body.inputs}
            special = {f"tangent_{i}" for i in range(count)} | ({"primal_output"} & names)
            _check_counts("jvp_body", self.jvp_body, special, count, 1)
        return made[0]

    def macs(self, operands: Types, out: TensorType) -> int:
        return self.fwd_body.total_macs


KINDS: tuple[type[Op], ...] = (If, While, Scan, ScanBackward, ScanBackwardXs, Custom, CustomFn)


def saved_rows(op: Scan | ScanBackward | ScanBackwardXs) -> int:
    """Rows of the trajectory. Raises ShapeError for more checkpoints than steps."""
    if op.length < 0 or not 0 <= op.num_checkpoints <= op.length:
        raise ShapeError(f"{op.num_checkpoints} checkpoints of {op.length} steps")
    return op.num_checkpoints or op.length


def _xs(count: int) -> str:
    return f",xs={count}" if count else ""


def _traj(saved: bool) -> str:
    return ",traj" if saved else ""


def _outputs(body: Graph) -> Types:
    return [node.type for node in body.output_nodes]


def _first(types: Types) -> TensorType:
    if not types:
        raise ShapeError("a body without an output")
    return types[0]


def _listed(types: Types) -> str:
    return ", ".join(map(str, types)) or "nothing"


def _check_types(what: str, found: Types, wanted: Types) -> None:
    if tuple(found) != tuple(wanted):
        raise ShapeError(f"{what} {_listed(found)}; {_listed(wanted)} is needed")


def _check_condition(what: str, type: TensorType) -> None:
    if type.dtype is not DType.BOOL or type.elements != 1:
        raise ShapeError(f"{what} is {type}; one bool is needed")


def _row(xs: TensorType, length: int, what: str) -> TensorType:
    if xs.shape[:1] != (length,) or (xs.quant is not None and xs.quant.axis is not None):
        raise ShapeError(f"{what} is {xs}; {length} rows, with one scale at most, are needed")
    return TensorType(xs.shape[1:], xs.dtype, xs.quant)


def _stacked(carry: TensorType, rows: int) -> TensorType:
    if carry.quant is not None and carry.quant.axis is not None:
        raise ShapeError(f"carry {carry}; one scale at most is needed where carries are stacked")
    return TensorType((rows, *carry.shape), carry.dtype, carry.quant)


def _check_counts(what: str, body: Graph, special: set[str], plain: int, outputs: int) -> None:
    names = {node.name for node in body.inputs}
    if not special <= names or len(names) != plain + len(special) or len(body.outputs) != outputs:
        wanted = f"{plain} inputs, {', '.join(map(repr, sorted(special))) or 'no special one'} and {outputs} outputs"
        raise ShapeError(f"{what} has the inputs {sorted(names)} and {len(body.outputs)} outputs; {wanted} are needed")


def _check_backward(op: ScanBackward | ScanBackwardXs, operands: Types) -> None:
    """Raises ShapeError unless operands and bodies are those of a Scan's gradient.

    `upstream` is like the carry, or like carries of all steps or of the saved ones. (Ours, and generous.)
    """
    carry, trajectory, upstream, *xs = operands
    rows = saved_rows(op)
    _check_types("the trajectory is", (trajectory,), (_stacked(carry, rows),))
    if upstream not in (carry, _stacked(carry, rows), _stacked(carry, op.length)):
        raise ShapeError(f"upstream is {upstream}; {carry} or rows of that are needed")
    for i, one in enumerate(xs):
        _row(one, op.length, f"xs {i}")
    _check_counts("body_vjp", op.body_vjp, {"d_output"}, 1 + op.num_xs, 1 + op.num_xs)
    if op.forward_body is None and rows < op.length:
        raise ShapeError(f"{rows} checkpoints of {op.length} steps, but no forward_body to compute the others with")
