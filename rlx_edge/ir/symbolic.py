"""Shapes for any batch: what is N, 2N or N+1 where the first axis of the inputs is N.

Found by inferring all shapes for several batches and fitting a line through each size, so it holds for any op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rlx_edge.errors import ModelError
from rlx_edge.ir.graph import Graph, Node
from rlx_edge.ir.nested import with_bodies
from rlx_edge.ir.ops import Expand, Input, Leaf, Op, Reshape, ShapeError
from rlx_edge.ir.tensor import Shape, TensorType

STEPS = (0, 1, 2, 5, 11)
"""Batches that are tried, beside the graph's own; a line fits through all of them or is not believed."""


@dataclass(frozen=True)
class Linear:
    """factor * N + constant, where the factor is not 0."""

    factor: int
    constant: int = 0

    def at(self, batch: int) -> int:
        return self.factor * batch + self.constant

    def __str__(self) -> str:
        factor = {1: "", -1: "-"}.get(self.factor, str(self.factor))
        return f"{factor}N" + (f"{self.constant:+}" if self.constant else "")


@dataclass(frozen=True)
class Unknown:
    """A size that does not follow the batch in a line, or that is not known for other batches."""

    def __str__(self) -> str:
        return "?"


Dim = int | Linear | Unknown


def batch_shapes(graph: Graph) -> dict[int, tuple[Dim, ...]]:
    """The shape of each node by its id, for N samples.

    An input without axes stays as it is. A Reshape or Expand to a fixed size keeps the batch where it was: a first
    entry that is the graph's batch, or that must grow for the elements to fit, grows with it. (Ours.) Raises ModelError
    where there is no input with a batch, or inputs differ in it.
    """
    batch = _batch_of(graph)
    columns = zip(*(_sized(graph, batch, batch + step) for step in STEPS), strict=True)
    return {node.id: tuple(_fit(node, batch, types)) for node, types in zip(graph.nodes, columns, strict=True)}


def _batch_of(graph: Graph) -> int:
    found = {node.type.shape[0]: node for node in graph.inputs if node.type.shape}
    if len(found) != 1:
        sizes = ", ".join(f"{node.name!r} {node.type}" for node in found.values()) or "none with an axis"
        raise ModelError(f"{graph.name!r} has no one batch: its inputs are {sizes}")
    return next(iter(found))


def _fit(node: Node, batch: int, types: Sequence[TensorType | None]) -> Iterator[Dim]:
    """A line through each size of the node's shapes for the batches that were tried."""
    for axis, declared in enumerate(node.type.shape):
        sizes = [type.shape[axis] for type in types if type is not None and len(type.shape) == len(node.type.shape)]
        if len(sizes) != len(STEPS) or sizes[0] != declared:
            yield Unknown()
            continue
        factor = sizes[1] - sizes[0]
        line = Linear(factor, declared - factor * batch)
        fits = all(line.at(batch + step) == size for step, size in zip(STEPS, sizes, strict=True))
        yield (line if factor else declared) if fits else Unknown()


def _sized(graph: Graph, old: int, batch: int) -> list[TensorType | None]:
    """The type of each node when the first axis of each input is `batch`; None where that is not known."""
    given = [
        replace(node.type, shape=(batch, *node.type.shape[1:])) if node.type.shape else node.type
        for node in graph.inputs
    ]
    return [None if node is None else node.type for node in _retyped(graph, given, old, batch)]


def _retyped(graph: Graph, inputs: Sequence[TensorType], old: int, batch: int) -> list[Node | None]:
    """The nodes when the inputs have these types, with ops that fit them; None where none is known."""
    waiting = iter(inputs)
    made: list[Node | None] = []
    for node in graph.nodes:
        if isinstance(node.op, Input):
            made.append(replace(node, type=next(waiting)))
            continue
        operands = [held.type for i in node.inputs if (held := made[i]) is not None]
        if isinstance(node.op, Leaf) or operands == list(graph.operand_types(node)):
            made.append(node)
        elif len(operands) != len(node.inputs):
            made.append(None)
        else:
            made.append(_fitted(node, operands, old, batch))
    return made


def _fitted(node: Node, operands: Sequence[TensorType], old: int, batch: int) -> Node | None:
    for op in _candidates(node.op, operands, old, batch):
        try:
            shape, dtype = op.infer(operands)
        except (ShapeError, ArithmeticError, LookupError):
            continue
        return replace(node, op=op, type=TensorType(shape, dtype, node.type.quant))
    return None


def _candidates(op: Op, operands: Sequence[TensorType], old: int, batch: int) -> Iterator[Op]:
    """The op as it may be meant for another batch, most likely first."""
    if isinstance(op, Reshape) and (-1 not in op.new_shape or op.new_shape[0] == old):
        yield replace(op, new_shape=_grown(op.new_shape, old, batch))
    if isinstance(op, Expand):
        yield replace(op, target_shape=_grown(op.target_shape, old, batch))
    if not op.bodies:
        yield op
        return
    try:
        yield _with_fitted_bodies(op, operands, old, batch)
    except ShapeError:
        return


def _grown(shape: Shape, old: int, batch: int) -> Shape:
    """The shape with its first entry grown as the batch grew, where it is a multiple of that."""
    return (shape[0] * batch // old, *shape[1:]) if shape and shape[0] % old == 0 else shape


def _with_fitted_bodies(op: Op, operands: Sequence[TensorType], old: int, batch: int) -> Op:
    """The op with nested graphs whose inputs have the types that these operands give. Raises ShapeError."""
    from rlx_edge.ir.ops.control import Nested

    wanted = op.body_inputs(operands) if isinstance(op, Nested) else {}

    def fitted(field: str, body: Graph) -> Graph:
        if field not in wanted or len(wanted[field]) != len(body.inputs):
            return body
        nodes = _retyped(body, wanted[field], old, batch)
        known = tuple(node for node in nodes if node is not None)
        if len(known) != len(nodes):
            raise ShapeError(f"{field} does not follow the batch")
        return replace(body, nodes=known)

    return with_bodies(op, fitted)
