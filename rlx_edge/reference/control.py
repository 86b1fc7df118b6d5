"""Control flow, and what users registered: nested graphs run by the reference, values bound by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx_edge.errors import ModelError, UnsupportedError
from rlx_edge.ir import Array, Graph, TensorType
from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.ops import Op
from rlx_edge.ir.ops.control import Custom, CustomFn, If, Scan, While, saved_rows

Types = Sequence[TensorType]


def run_body(body: Graph, values: Sequence[Array]) -> list[Array]:
    """The outputs of a nested graph, whose inputs are these values in their order."""
    from rlx_edge.reference.run import run

    made = run(body, {node.name: value for node, value in zip(body.inputs, values, strict=True)})
    return [made[node.name] for node in body.output_nodes]


def if_(op: Op, operands: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, If)
    return run_body(op.then_branch if operands[0].item() else op.else_branch, operands[1:])[0]


def while_(op: Op, operands: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, While)
    carried, iterations = list(operands), 0
    while iterations != op.max_iterations and run_body(op.cond, carried)[0].item():
        carried, iterations = run_body(op.body, carried), iterations + 1
    return carried[0]


def scan(op: Op, operands: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Scan)
    held = 1 + op.num_bcast
    carry, trajectory = operands[0], []
    for step in range(op.length):
        rows = (xs[step] for xs in operands[held:])
        (carry,) = run_body(op.body, [carry, *operands[1:held], *rows])
        trajectory.append(carry)
    if not op.save_trajectory:
        return carry
    saved = saved_rows(op)
    return np.stack([trajectory[row * op.length // saved] for row in range(saved)])


def custom(op: Op, operands: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, Custom)
    registered = find_custom(op.name)
    if registered is None:
        raise UnsupportedError(f"the custom op {op.name!r} is not registered: register_custom of rlx_edge.ir.custom")
    made = registered.reference(op, operands, types, out)
    if not isinstance(made, np.ndarray) or (made.shape, made.dtype) != (out.shape, out.dtype.numpy):
        found = f"{made.dtype}{list(made.shape)}" if isinstance(made, np.ndarray) else type(made).__name__
        raise ModelError(f"the reference of the custom op {op.name!r} gives {found}, but its shape function {out}")
    return made


def custom_fn(op: Op, operands: Sequence[Array], types: Types, out: TensorType) -> Array:
    assert isinstance(op, CustomFn)
    return run_body(op.fwd_body, operands)[0]


FUNCTIONS = {If: if_, While: while_, Scan: scan, Custom: custom, CustomFn: custom_fn}
ON_CODES = FUNCTIONS
