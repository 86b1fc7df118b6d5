"""A float graph and its calibration to an int8 graph."""

from __future__ import annotations

from collections.abc import Iterator

from rlx_edge.errors import UnsupportedError
from rlx_edge.ir import DType, Graph, Node, Requant
from rlx_edge.ir.ops import Concat, Input, Leaf, MatMul, Reduce, ReduceOp
from rlx_edge.passes.fuse import find_fusions, fused_away
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.rebuild import builder_like, is_anchor
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.quant.assign import assign_params
from rlx_edge.quant.calibrate import Calibration
from rlx_edge.quant.lower import ANCHORS, LOWER, Lowering


def quantize(graph: Graph, calibration: Calibration, requant: Requant = Requant.TFLM) -> Graph:
    """The int8 graph: int8 inputs and outputs, every op under one rounding rule.

    Node names, sources and the layouts of inputs and outputs are those of the float graph. Raises UnsupportedError
    listing every node that has no int8 form.
    """
    prepared = prepare(graph)
    problems = [f"{node}: {problem}" for node in prepared.nodes for problem in _problems(prepared, node)]
    if problems:
        raise UnsupportedError(f"{graph.name!r} cannot be quantized to int8:", problems)
    fusions = find_fusions(prepared)
    inside = fused_away(prepared, fusions)
    params = assign_params(prepared, fusions, calibration.ranges)
    lowering = Lowering(prepared, builder_like(prepared), requant, params, fusions)
    for node in prepared.nodes:
        if node.id not in inside and (isinstance(node.op, Input) or not isinstance(node.op, Leaf)):
            lowering.ids[node.id] = LOWER[type(node.op if node.id not in fusions else fusions[node.id].anchor.op)](
                lowering, node
            )
    return remove_dead(lowering.builder.build([lowering.operand(i) for i in prepared.outputs]))


def _problems(graph: Graph, node: Node) -> Iterator[str]:
    if isinstance(node.op, Leaf):
        if graph.constant(node) is not None and node.id in graph.outputs:
            yield "it is an output, but a constant; take it out of the model"
        return
    if type(node.op) not in LOWER:
        yield f"{node.op.kind_name} has no int8 form, or is quantized already"
    elif node.type.dtype is not DType.F32:
        yield f"its result is {node.type}, not float32"
    elif isinstance(node.op, ANCHORS) and not is_anchor(graph, node):
        yield "its weights are computed by the model; constant weights are needed"
    elif isinstance(node.op, MatMul) and len(graph.operand_types(node)[1].shape) != 2:
        yield f"weights of shape {list(graph.operand_types(node)[1].shape)}; a matrix is needed"
    elif isinstance(node.op, Reduce) and node.op.op is not ReduceOp.MEAN:
        yield f"a reduction by {node.op.op.value}; only Mean has an int8 form"
    elif all(graph.constant(o) is not None for o in graph.operands(node)):
        yield "all of its operands are constants; fold it before quantization"
    elif isinstance(node.op, Concat) and (
        held := [o.name for o in graph.operands(node) if graph.constant(o) is not None]
    ):
        yield f"it joins the constants {held} to computed values; only computed tensors are joined on int8"
