"""Ops of users, as calls of their own kernels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call, Constant, View
from rlx_edge.errors import ModelError
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.ops.control import Custom


def custom(graph: Graph, node: Node) -> tuple[Call, ...]:
    """One call for the whole tensor, as row 0. Raises ModelError where what the user's functions give is no int32."""
    assert isinstance(node.op, Custom)
    registered = find_custom(node.op.name)
    assert registered is not None and registered.kernel is not None
    own, facts = registered.kernel, (node.op, graph.operand_types(node), node.type)
    given = own.params(*facts)
    scratch = 0 if own.scratch is None else own.scratch(*facts)
    if not isinstance(given, Mapping):
        raise ModelError(
            f"{node}: params gave {given!r}; numbers by the names of the fields of {own.struct} are needed"
        )
    beyond = [f"{name} = {value}" for name, value in given.items() if not _is_int32(value)]
    if beyond or not _is_int32(scratch) or scratch < 0:
        wrong = ", ".join(beyond) or f"{scratch} bytes of scratch memory"
        raise ModelError(f"{node}: the kernel {own.function} gets {wrong}")
    params = {name: int(value) for name, value in given.items()}
    kernel = Kernel(
        own.function,
        own.struct,
        (),
        tuple(params),
        len(node.inputs),
        stack_bytes=own.stack_bytes,
        scratch=own.scratch is not None,
        files=own.files,
    )
    views = tuple(_view(graph, operand, place) for place, operand in enumerate(graph.operands(node)))
    return (Call(kernel, params, views, View(node.id, node.type.bytes), 1, scratch=int(scratch)),)


def _is_int32(value: object) -> bool:
    return isinstance(value, int | np.integer) and -(2**31) <= int(value) < 2**31


def _view(graph: Graph, operand: Node, place: int) -> View:
    values = graph.constant(operand)
    if values is None:
        return View(operand.id, operand.type.bytes)
    return View(Constant(f"operand_{place}", np.ascontiguousarray(values)), operand.type.bytes)
