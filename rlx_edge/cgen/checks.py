"""Conditions on single nodes that a target's table of ops refers to. Each says what is out of range, or None."""

from __future__ import annotations

from rlx_edge.ir import DType, FrozenTable, Graph, Node, Requant
from rlx_edge.ir.custom import find_custom
from rlx_edge.ir.ops import DequantMatMul, Layout, Pad, PadMode, Pool, Reduce, ReduceOp, Softmax
from rlx_edge.ir.ops.control import Custom
from rlx_edge.ir.ops.dequant import STORED

MAX_RANK = 4
MAX_SOFTMAX_WIDTH = 4095


def channels_last(graph: Graph, node: Node) -> str | None:
    layout: Layout = getattr(node.op, "layout", Layout.NHWC)
    return None if layout is Layout.NHWC else f"layout {layout.value}; kernels are NHWC (the pass to_nhwc moves it)"


def constant_weights(graph: Graph, node: Node) -> str | None:
    computed = [o.name for o in graph.operands(node)[1:] if graph.constant(o) is None]
    return f"weights or bias {computed} that are computed, not constant" if computed else None


def stored_scheme(graph: Graph, node: Node) -> str | None:
    assert isinstance(node.op, DequantMatMul)
    if node.op.scheme.kind in STORED:
        return None
    return f"weights of the scheme {node.op.scheme}; {', '.join(kind.value for kind in STORED)} are supported"


def computed_operands(graph: Graph, node: Node) -> str | None:
    constant = [o.name for o in graph.operands(node) if graph.constant(o) is not None]
    return f"constant operands {constant}; fold them ahead of time" if constant else None


def some_computed_operand(graph: Graph, node: Node) -> str | None:
    constant = all(graph.constant(o) is not None for o in graph.operands(node))
    return "only constant operands; fold it ahead of time" if constant else None


def computed_input(graph: Graph, node: Node) -> str | None:
    first = graph.nodes[node.inputs[0]]
    return f"a constant input {first.name!r}; fold it ahead of time" if graph.constant(first) is not None else None


def registered_kernel(graph: Graph, node: Node) -> str | None:
    assert isinstance(node.op, Custom)
    registered = find_custom(node.op.name)
    if registered is None:
        return f"the custom op {node.op.name!r} is not registered: rlx-edge --ops FILE.py names the file that does it"
    if registered.kernel is None:
        return f"the custom op {node.op.name!r} has no C kernel"
    other = [t for t in (*graph.operand_types(node), node.type) if t.dtype is not DType.I8]
    return f"a custom op on {other[0].dtype.value}; int8 is needed" if other else None


def last_axis(graph: Graph, node: Node) -> str | None:
    assert isinstance(node.op, Softmax)
    rank = len(node.type.shape)
    if node.op.axis % rank != rank - 1:
        return f"axis {node.op.axis}; only the last axis is supported"
    width = node.type.shape[-1]
    return None if width <= MAX_SOFTMAX_WIDTH else f"{width} classes; at most {MAX_SOFTMAX_WIDTH} keep the sum exact"


def mean_or_max(graph: Graph, node: Node) -> str | None:
    assert isinstance(node.op, Pool)
    kinds = (ReduceOp.MEAN, ReduceOp.MAX)
    return None if node.op.kind in kinds else f"pooling by {node.op.kind.value}; Mean and Max are supported"


def mean(graph: Graph, node: Node) -> str | None:
    assert isinstance(node.op, Reduce)
    return None if node.op.op is ReduceOp.MEAN else f"a reduction by {node.op.op.value}; Mean is supported"


def same_parameters(graph: Graph, node: Node) -> str | None:
    differ = [o.name for o in graph.operands(node) if o.type.quant != node.type.quant]
    return f"operands {differ} with parameters other than the output's; requantize explicitly" if differ else None


def pool_parameters(graph: Graph, node: Node) -> str | None:
    """A mean under the rule onnx requantizes; any other pool keeps its operand's parameters."""
    assert isinstance(node.op, Pool)
    requantizes = node.op.kind is ReduceOp.MEAN and node.op.requant is Requant.ONNX
    return None if requantizes else same_parameters(graph, node)


def no_batch_padding(graph: Graph, node: Node) -> str | None:
    assert isinstance(node.op, Pad)
    if node.op.mode is not PadMode.CONSTANT:
        return f"padding in mode {node.op.mode.value}; Constant is supported"
    padded = len(node.op.pads) == MAX_RANK and node.op.pads[0] != (0, 0)
    return "padding along the batch axis" if padded else None


def per_tensor(graph: Graph, node: Node) -> str | None:
    """Activations have one scale."""
    kinds = [t.quant for t in (graph.nodes[node.inputs[0]].type, node.type) if t.quant is not None]
    return "a scale per channel on an activation" if any(q.axis is not None for q in kinds) else None


def table(graph: Graph, node: Node) -> str | None:
    """An int8 function is a table, which passes/freeze makes."""
    return None if isinstance(getattr(node.op, "frozen", None), FrozenTable) else "no table of its 256 results"
