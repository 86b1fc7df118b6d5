"""Is a graph well formed? Runs after every import and every pass, and reports every problem at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from rlx_edge.errors import ModelError
from rlx_edge.ir.dtype import Array, DType
from rlx_edge.ir.graph import Graph, Node
from rlx_edge.ir.nested import MAX_NESTING, bodies_of
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Constant,
    Dequantize,
    Input,
    Leaf,
    Param,
    QConv2d,
    QMatMul,
    Quantize,
    ShapeError,
)
from rlx_edge.ir.tensor import MAX_RANK, QuantParams

MULT_TOLERANCE = 1e-5
"""How far an op's `mult` may be from its tensors' scales: it may have passed through float32."""


def verify(graph: Graph) -> None:
    """Raise ModelError naming every node that is not well formed."""
    problems = list(find_problems(graph))
    if problems:
        count = f"{len(problems)} problem" + ("s" if len(problems) > 1 else "")
        raise ModelError("\n  ".join([f"graph {graph.name!r} is not well formed, {count}:", *problems]))


def find_problems(graph: Graph) -> Iterator[str]:
    """Every problem of the graph and its nested ones, one line each, naming node, op, operands and what was found."""
    return _graph_problems(graph, 0)


def _graph_problems(graph: Graph, depth: int) -> Iterator[str]:
    for index, node in enumerate(graph.nodes):
        if node.id != index:
            yield f"{node} stands at position {index}"
        for problem in _node_problems(graph, node, index, depth):
            yield f"{node}: {problem}"
    if not graph.outputs:
        yield "the graph has no output"
    for output in graph.outputs:
        if not 0 <= output < len(graph.nodes):
            yield f"output {output} is not a node"
    for name in sorted(name for name, count in Counter(node.name for node in graph.nodes).items() if count > 1):
        yield f"the name {name!r} is used more than once"


def _node_problems(graph: Graph, node: Node, index: int, depth: int) -> Iterator[str]:
    yield from _own_problems(node)
    inside = list(_nested_problems(node, depth))
    yield from inside
    outside = list(_operand_problems(graph, node, index))
    yield from outside
    if isinstance(node.op, Leaf):
        yield from _leaf_problems(graph, node)
    elif not inside and not outside:  # Only then can be told what the operands give.
        yield from _type_problems(graph, node)
        yield from _quantization_problems(graph, node)


def _own_problems(node: Node) -> Iterator[str]:
    """What is wrong whatever the operands are."""
    if len(node.type.shape) > MAX_RANK:
        yield f"{len(node.type.shape)} axes; {MAX_RANK} are possible"
    if any(d < 1 for d in node.type.shape):
        yield f"shape {list(node.type.shape)} has an axis without elements"
    if node.type.quant is not None:
        if node.type.dtype.is_integer:
            yield from node.type.quant.problems(node.type.shape, node.type.dtype)
        else:
            yield f"quantization parameters on a {node.type.dtype.value} tensor"
    if node.channels is not None:
        yield from node.channels.problems(node.type.shape[-1] if node.type.shape else 0)


def _nested_problems(node: Node, depth: int) -> Iterator[str]:
    for field, body in bodies_of(node.op):
        if depth == MAX_NESTING:
            yield f"{field} lies deeper than {MAX_NESTING} graphs in each other"
        else:
            yield from (f"{field}: {problem}" for problem in _graph_problems(body, depth + 1))


def _operand_problems(graph: Graph, node: Node, index: int) -> Iterator[str]:
    """Why nothing can be told from the operands."""
    missing = [i for i in node.inputs if not 0 <= i < len(graph.nodes)]
    late = [i for i in node.inputs if index <= i < len(graph.nodes)]
    if missing:
        yield f"operands {missing} are not nodes"
    if late:
        yield f"operands {late} do not come before it"
    if not node.op.arity.accepts(len(node.inputs)):
        yield f"{len(node.inputs)} operands where {node.op.arity} are needed"
    wide = [i for i in node.inputs if i not in (*missing, *late) and len(graph.nodes[i].type.shape) > MAX_RANK]
    if wide:
        yield f"operands {wide} have more than {MAX_RANK} axes"


def _leaf_problems(graph: Graph, node: Node) -> Iterator[str]:
    if isinstance(node.op, Param):
        values = graph.params.get(node.op.name)
        if values is None:
            yield f"no values for the parameter {node.op.name!r}"
        elif values.shape != node.type.shape or values.dtype != node.type.dtype.numpy:
            yield f"declared {node.type}, but its values are {values.dtype}{list(values.shape)}"
        elif node.type.dtype.bits < 8:
            yield from _range_problems(values, node.type.dtype)
    elif isinstance(node.op, Constant) and len(node.op.data) != node.type.bytes:
        yield f"{len(node.op.data)} bytes of data for {node.type}"
    elif isinstance(node.op, Input) and node.op.name != node.name:
        yield f"an input called {node.op.name!r} on a node of another name"


def _range_problems(values: Array, dtype: DType) -> Iterator[str]:
    low, high = dtype.limits
    if values.size and (values.min() < low or values.max() > high):
        yield f"values from {values.min()} to {values.max()}, but {dtype.value} holds {low} to {high}"


def _type_problems(graph: Graph, node: Node) -> Iterator[str]:
    operands = graph.operands(node)
    try:
        node.op.check([operand.type for operand in operands], node.type)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # Files can give an op attributes that its rule was not written for.
        reason = str(error) if isinstance(error, ShapeError) else f"its attributes cannot be ({error})"
        given = ", ".join(f"{operand.name!r} {operand.type}" for operand in operands)
        yield f"{reason}; operands: {given}" if given else reason


def _quantization_problems(graph: Graph, node: Node) -> Iterator[str]:
    op, out = node.op, node.type
    if isinstance(op, Activation) and op.fn is ActivationFn.TABLE:
        yield from _table_problems(op)
    clamp: tuple[int, int] | None = getattr(op, "clamp", None)
    if clamp is not None and out.dtype.is_integer:
        low, high = out.dtype.limits
        if not low <= clamp[0] <= clamp[1] <= high:
            yield f"bounds {clamp}, which are not two rising values of {out.dtype.value}"
    if isinstance(op, Quantize) and out.quant != QuantParams(op.scales, op.zero_points, op.axis):
        yield "the output's quantization parameters are not the op's"
    if isinstance(op, Dequantize):
        held = graph.nodes[node.inputs[0]].type.quant
        if held != QuantParams(op.scales, op.zero_points, op.axis):
            yield "the operand's quantization parameters are not the op's"
    if isinstance(op, QMatMul | QConv2d):
        yield from _derived_problems(graph, node, op)


def _table_problems(op: Activation) -> Iterator[str]:
    low, high = DType.I8.limits
    codes = () if op.frozen is None else op.frozen.codes
    if len(codes) != high - low + 1 or not all(low <= code <= high for code in codes):
        yield f"a table of {len(codes)} codes; {high - low + 1} codes of int8 are needed"


def _derived_problems(graph: Graph, node: Node, op: QMatMul | QConv2d) -> Iterator[str]:
    x, w, bias = graph.operand_types(node)
    counts = set() if op.frozen is None else {len(op.frozen.multipliers), len(op.frozen.shifts)}
    if counts and counts not in ({1}, {bias.elements}):
        yield f"frozen multipliers and shifts for {sorted(counts)} channels, but it has {bias.elements}"
    if x.quant is None or w.quant is None or node.type.quant is None:
        yield "x, w and the output need quantization parameters"
        return
    try:
        zeros = (x.quant.zero_point, w.quant.zero_point, node.type.quant.zero_point)
        expected = real_multipliers(x.quant, w.quant, node.type.quant)
    except ValueError as error:
        yield str(error)
        return
    except ZeroDivisionError:
        return  # an output scale of 0, which has been reported
    if zeros != (op.x_zp, op.w_zp, op.out_zp):
        yield f"zero points {(op.x_zp, op.w_zp, op.out_zp)}, but its tensors have {zeros}"
    if len(expected) != len(op.mult) or not all(
        math.isclose(a, b, rel_tol=MULT_TOLERANCE) for a, b in zip(expected, op.mult, strict=True)
    ):
        yield "mult does not agree with the scales of its tensors"


def real_multipliers(x: QuantParams, w: QuantParams, out: QuantParams) -> tuple[float, ...]:
    """x_scale * w_scale / out_scale in double precision, one value or one per output channel."""
    return tuple(x.scale * scale / out.scale for scale in w.scales)
