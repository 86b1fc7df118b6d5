"""Can this target run this graph, exactly? All violations are reported at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from rlx_edge.cgen import proof
from rlx_edge.cgen.checks import MAX_RANK
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, Graph, Node
from rlx_edge.ir.nested import bodies_of
from rlx_edge.ir.ops import Leaf

MAX_AXIS = 0xFFFF
MAX_DATA_RANK = 6
INT32 = range(-(2**31), 2**31)


def legalize(graph: Graph, target: TargetConfig) -> tuple[str, ...]:
    """Check every node against the target and prove that no int32 overflows; the proofs, as text.

    Raises UnsupportedError naming every node that the target cannot run and why.
    """
    violations: list[str] = []
    proofs: list[str] = []
    for node in graph.nodes:
        found = list(_violations(graph, node, target))
        if not found and not isinstance(node.op, Leaf):
            bound = proof.prove(graph, node)
            if bound is not None and not bound.holds:
                found = [bound.text]
            elif bound is not None:
                proofs.append(f"{node.name}: {bound.text}")
        violations += [f"{node}: {text}" for text in found]
    violations += [
        f"{node}: it is an output, but nothing computes it" for node in graph.output_nodes if isinstance(node.op, Leaf)
    ]
    if violations:
        count = f"{len(violations)} reason" + ("s" if len(violations) > 1 else "")
        raise UnsupportedError(f"{graph.name!r} cannot run on {target.name}, {count}:", violations)
    return tuple(proofs)


def _violations(graph: Graph, node: Node, target: TargetConfig) -> Iterator[str]:
    if len(node.type.shape) > MAX_DATA_RANK or any(size > MAX_AXIS for size in node.type.shape):
        yield f"shape {list(node.type.shape)}; at most {MAX_DATA_RANK} axes of at most {MAX_AXIS} elements"
    if isinstance(node.op, Leaf):
        return
    if node.op.bodies:
        yield f"no code is generated for nested graphs ({', '.join(field for field, _ in bodies_of(node.op))})"
        return
    support = target.ops.get(type(node.op))
    if support is None:
        kinds = ", ".join(sorted(kind.__name__ for kind in target.ops))
        yield f"the op is not one of the target's ({kinds})"
        return
    types = graph.operand_types(node)
    if types[0].dtype not in support.dtypes:
        wanted = " or ".join(dtype.value for dtype in support.dtypes)
        hint = "; quantize the model first" if types[0].dtype is DType.F32 else ""
        yield f"operands of {types[0].dtype.value}, not {wanted}{hint}"
        return
    rule = getattr(node.op, "requant", None)
    if support.rules is not None and rule not in support.rules and types[0].dtype is DType.I8:
        names = ", ".join(r.value for r in support.rules)
        yield f"rounding rule {rule.value if rule else None!r}, not one of {names} (convert with --requant)"
    if max(len(t.shape) for t in (*types, node.type)) > MAX_RANK and not _moves_bytes(node):
        yield f"a tensor of more than {MAX_RANK} axes"
    for field in fields(node.op):
        value = getattr(node.op, field.name)
        if any(type(n) is int and n not in INT32 for n in (value if isinstance(value, tuple) else (value,))):
            yield f"{field.name} {value} is beyond int32"
            return
    for check in support.checks:
        problem = check(graph, node)
        if problem is not None:
            yield problem


def _moves_bytes(node: Node) -> bool:
    kinds = ("Reshape", "Narrow", "Concat", "Quantize", "Dequantize", "Clamp", "Activation", "Custom")
    return node.op.kind_name in kinds
