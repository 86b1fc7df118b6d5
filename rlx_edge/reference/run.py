"""Run a graph in numpy: one function an op, found in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rlx_edge.errors import DataError, UnsupportedError
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import (
    Activation,
    ArgMax,
    ArgMin,
    ArgSort,
    Binary,
    Cast,
    Clamp,
    Compare,
    Concat,
    Conv,
    Conv3d,
    ConvTranspose2d,
    CumProd,
    Cumsum,
    Dequantize,
    DequantMatMul,
    Expand,
    FakeQuantize,
    FakeQuantizeBackward,
    FakeQuantizeLSQ,
    FakeQuantizeLSQBackwardScale,
    FakeQuantizeLSQBackwardX,
    Gather,
    GatherElements,
    GatherNd,
    GroupNorm,
    Input,
    LayerNorm,
    Leaf,
    MatMul,
    Narrow,
    Op,
    Pad,
    Pool,
    QConv2d,
    QMatMul,
    Quantize,
    Reduce,
    Reshape,
    Reverse,
    RmsNorm,
    ScatterElements,
    ScatterNd,
    Slice,
    Softmax,
    Tile,
    TopK,
    Transpose,
    Trilu,
    Where,
)
from rlx_edge.reference import (
    binary,
    dequant,
    fake_quant,
    floating,
    integer,
    moving,
    normalization,
    reductions,
    unary,
)
from rlx_edge.reference.further import OpFunction, functions, functions_on_codes

Evaluate = Callable[[Graph, Node, Sequence[Array]], Array]
"""A node's value from its operands' values."""


FLOAT: dict[type[Op], OpFunction] = {
    Quantize: integer.quantize,
    FakeQuantize: fake_quant.fake_quantize,
    FakeQuantizeBackward: fake_quant.fake_quantize_backward,
    FakeQuantizeLSQ: fake_quant.lsq,
    FakeQuantizeLSQBackwardX: fake_quant.lsq_backward_x,
    FakeQuantizeLSQBackwardScale: fake_quant.lsq_backward_scale,
    Conv: floating.conv,
    ConvTranspose2d: floating.conv_transpose2d,
    Conv3d: floating.conv3d,
    Pool: floating.pool,
    MatMul: floating.matmul,
    DequantMatMul: dequant.dequant_matmul,
    Binary: binary.binary,
    Compare: binary.compare,
    Where: binary.where,
    Cast: binary.cast,
    Activation: unary.activation,
    Clamp: unary.clamp,
    Reduce: reductions.reduce,
    Softmax: reductions.softmax,
    Cumsum: reductions.cumsum,
    CumProd: reductions.cumprod,
    ArgMax: reductions.argmax,
    ArgMin: reductions.argmin,
    TopK: reductions.topk,
    ArgSort: reductions.argsort,
    LayerNorm: normalization.layer_norm,
    RmsNorm: normalization.rms_norm,
    GroupNorm: normalization.group_norm,
    Reshape: moving.reshape,
    Transpose: moving.transpose,
    Pad: moving.pad,
    Concat: moving.concat,
    Narrow: moving.narrow,
    Slice: moving.slice,
    Expand: moving.expand,
    Tile: moving.tile,
    Reverse: moving.reverse,
    Trilu: moving.trilu,
    Gather: moving.gather,
    GatherElements: moving.gather_elements,
    GatherNd: moving.gather_nd,
    ScatterElements: moving.scatter_elements,
    ScatterNd: moving.scatter_nd,
}
"""What each op means on float32, and on integers and bools that stand for themselves."""

INT8: dict[type[Op], OpFunction] = {
    Quantize: integer.quantize,
    Dequantize: integer.dequantize,
    QMatMul: integer.q_matmul,
    QConv2d: integer.q_conv2d,
    Activation: integer.activation,
    Pool: integer.pool,
    Binary: integer.binary,
    Clamp: integer.clamp,
    Reduce: integer.reduce,
    Softmax: integer.softmax,
    Reshape: moving.reshape,
    Transpose: moving.transpose,
    Narrow: moving.narrow,
    Slice: moving.slice,
    Expand: moving.expand,
    Reverse: moving.reverse,
    Tile: moving.tile,
    Gather: moving.gather,
    Trilu: integer.trilu,
    Pad: integer.pad,
    Concat: moving.concat,
}
"""What each op means on int8 that stands for real values."""


def evaluate(graph: Graph, node: Node, operands: Sequence[Array]) -> Array:
    """One node's value from its operands' values."""
    types = graph.operand_types(node)
    kind = type(node.op)
    if types and types[0].dtype == DType.I8 and types[0].quant is not None:
        function = INT8.get(kind) or functions_on_codes().get(kind)
    else:
        function = FLOAT.get(kind) or functions().get(kind)
    if function is None:
        on = f" on {types[0].dtype.value}" if types else ""
        raise UnsupportedError(f"{node}: the reference has no {node.op.kind_name}{on}")
    return function(node.op, operands, types, node.type)


def observe(
    graph: Graph,
    inputs: Mapping[str, Array],
    callback: Callable[[Node, Array], None],
    compute: Evaluate = evaluate,
) -> None:
    """Run the graph and call `callback(node, value)` for every node as it is computed; memory is freed early.

    `inputs` maps input names to arrays of the input's dtype and shape. `ir.with_batch` makes the graph for a batch.
    Raises DataError for a missing input, a wrong dtype or a wrong shape.
    """
    last_use = {operand: node.id for node in graph.nodes for operand in node.inputs}
    values: dict[int, Array] = {}
    for node in graph.nodes:
        held = _leaf_value(graph, node, inputs)
        values[node.id] = held if held is not None else compute(graph, node, [values[i] for i in node.inputs])
        callback(node, values[node.id])
        for operand in {*node.inputs, node.id}:
            if last_use.get(operand, node.id) <= node.id:
                del values[operand]


def _leaf_value(graph: Graph, node: Node, inputs: Mapping[str, Array]) -> Array | None:
    if isinstance(node.op, Input):
        return _checked_input(node, inputs)
    return graph.constant(node) if isinstance(node.op, Leaf) else None


def _checked_input(node: Node, inputs: Mapping[str, Array]) -> Array:
    value = inputs.get(node.name)
    if value is None:
        raise DataError(f"no values for the input {node.name!r}; given: {', '.join(inputs) or 'nothing'}")
    if value.shape != node.type.shape or value.dtype != node.type.dtype.numpy:
        raise DataError(f"input {node.name!r} is {node.type}, but {value.dtype}{list(value.shape)} was given")
    return value


def run_all(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The value of every node that is computed or given, by name. Parameters are left out."""
    values: dict[str, Array] = {}

    def keep(node: Node, value: Array) -> None:
        if isinstance(node.op, Input) or not isinstance(node.op, Leaf):
            values[node.name] = value

    observe(graph, inputs, keep)
    return values


def run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The graph's outputs by node name, for one set of inputs."""
    wanted = set(graph.outputs)
    values: dict[str, Array] = {}

    def keep(node: Node, value: Array) -> None:
        if node.id in wanted:
            values[node.name] = value

    observe(graph, inputs, keep)
    return {node.name: values[node.name] for node in graph.output_nodes}
