"""Cross-layer equalization: factors per channel moved between layers, so that one scale fits all channels of a tensor.

Dividing the output channels of one layer by s_c and multiplying the input channels of the next by s_c leaves the
float function as it is where only positively homogeneous ops (f(s x) = s f(x) for s > 0) stand between (Nagel et al.,
Data-Free Quantization Through Weight Equalization and Bias Correction, 2019). Here the factors come from the channels'
ranges on data, as weights have a scale per output channel anyway and the tensors between have a single one. An
addition ties its operands and its result to the same factors, so a residual branch moves as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, Graph, GraphBuilder, Node
from rlx_edge.ir.ops import (
    Activation,
    ActivationFn,
    Binary,
    BinaryOp,
    Conv,
    Layout,
    MatMul,
    Pad,
    Param,
    Pool,
    Reduce,
    ReduceOp,
    Reshape,
)
from rlx_edge.passes.fuse import find_fusions, fused_away
from rlx_edge.passes.pipeline import prepare
from rlx_edge.passes.rebuild import Ids, channel_axis, channel_vector, constant_operand, is_anchor, rebuild
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.quant.batches import batches
from rlx_edge.quant.calibrate import not_finite
from rlx_edge.quant.check_samples import check_samples
from rlx_edge.reference.fast import observe

EQUALIZED = "equalized"
"""The key in a graph's metadata that says so."""

POWER = 0.5
"""s_c = range_c ^ POWER. 1 would give all channels the same range, and leave none of them headroom for values beyond
those seen, nor the next layer's weights any of theirs; 0 changes nothing. The square root is the published rule's."""

LEAST_RANGE = 1 / 1024
"""Of the widest channel's range: a narrower channel counts as this wide, so that silent ones are not blown up."""


@dataclass(frozen=True)
class Group:
    """Tensors, by node id, that share factors [channels]; a longer last axis holds the channels several times over.

    `layers` make some of them, `readers` are the layers that read one.
    """

    tensors: tuple[int, ...]
    channels: int
    layers: tuple[int, ...]
    readers: tuple[int, ...]


def equalize(graph: Graph, data: Data) -> Graph:
    """The prepared float graph with the factors moved: the same function up to float rounding, other ranges inside.

    Calibrate and quantize what this returns. Tensors that an op bounds or bends other than Relu does, and the model's
    inputs and outputs, are left alone. Raises what `calibrate` raises for graphs and data that cannot be used.
    """
    prepared = prepare(graph)
    check_samples(prepared, data)
    groups = find_groups(prepared)
    ranges = _channel_ranges(prepared, data, groups)
    factors: dict[int, Array] = {}
    for group in groups:
        found = choose_factors([ranges[i] for i in group.tensors if i in ranges], group.channels)
        factors.update((i, np.resize(found, prepared.nodes[i].type.shape[-1])) for i in group.tensors)
    return _rewrite(prepared, factors).with_metadata(**{EQUALIZED: "1"})


def choose_factors(ranges: list[Array], channels: int) -> Array:
    """Factors [channels] from the ranges [n * channels] of the tensors that share them: the largest counts."""
    relative = np.zeros(channels)
    for widths in ranges:
        if widths.any():
            relative = np.maximum(relative, (widths / widths.max()).reshape(-1, channels).max(axis=0))
    return np.asarray(np.maximum(relative, LEAST_RANGE) ** POWER) if relative.any() else np.ones(channels)


def find_groups(graph: Graph) -> list[Group]:
    """Every group of tensors through which factors can move, from the layers that make them to those that read them."""
    parents = list(range(len(graph.nodes)))

    def root(i: int) -> int:
        while parents[i] != i:
            i = parents[i]
        return i

    blocked = set(graph.outputs)
    for node in graph.nodes:
        tied = _tied(graph, node)
        if tied is None:
            blocked.update((node.id, *node.inputs))
        for operand in tied or ():
            parents[root(operand)] = root(node.id)
    members: dict[int, list[int]] = {}
    for node in graph.nodes:
        if graph.constant(node) is None:
            members.setdefault(root(node.id), []).append(node.id)
    return [
        group
        for tensors in members.values()
        if not blocked.intersection(tensors) and (group := _group(graph, tensors)) is not None
    ]


def _group(graph: Graph, tensors: list[int]) -> Group | None:
    """None where no layer makes the tensors or none reads them, or where their channels do not match."""
    sizes = {graph.nodes[i].type.shape[-1] for i in tensors}
    layers = tuple(i for i in tensors if is_anchor(graph, graph.nodes[i]))
    readers = {user for i in tensors for user in graph.users[i] if is_anchor(graph, graph.nodes[user])}
    if not layers or not readers or any(size % min(sizes) for size in sizes):
        return None
    return Group(tuple(tensors), min(sizes), layers, tuple(sorted(readers)))


def _tied(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The operands whose factors are those of the result; none for a layer; None where factors cannot pass."""
    op, rank, constant = node.op, len(node.type.shape), graph.constant(node)
    shape = graph.operand_types(node)[0].shape if node.inputs else ()
    if constant is not None:
        return ()
    passes = False
    if isinstance(op, Conv | MatMul):
        return () if is_anchor(graph, node) and channel_axis(node) == rank - 1 else None
    if isinstance(op, Binary) and op.fn in (BinaryOp.ADD, BinaryOp.SUB):
        return _tied_by_sum(graph, node)
    if isinstance(op, Activation):
        passes = op.fn in (ActivationFn.RELU, ActivationFn.LEAKY_RELU)
    elif isinstance(op, Pool):
        passes = op.layout is Layout.NHWC
    elif isinstance(op, Pad):
        passes = op.value == 0 and op.pads[-1] == (0, 0)
    elif isinstance(op, Reduce):
        kept = rank > 0 and not {len(shape) - 1, -1} & set(op.axes)
        passes = op.op is ReduceOp.MEAN and kept and bool(op.axes)
    elif isinstance(op, Reshape):
        passes = rank > 0 and len(shape) > 0 and node.type.shape[-1] % shape[-1] == 0
    return node.inputs if passes else None


def _tied_by_sum(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """A sum of tensors of one shape, or of a tensor and one constant a channel (a bias), which is divided too."""
    found = constant_operand(graph, node)
    if found is not None:
        computed = node.inputs[1 - found[0]]
        fits = graph.nodes[computed].type.shape == node.type.shape and channel_vector(found[1], node) is not None
        return (computed,) if fits else None
    same = all(type.shape == node.type.shape for type in graph.operand_types(node))
    return node.inputs if same and node.type.shape else None


def _channel_ranges(graph: Graph, data: Data, groups: list[Group]) -> dict[int, Array]:
    """The width [C] of each channel's range, with 0 in it, of the groups' tensors that an int8 model stores."""
    inside = fused_away(graph, find_fusions(graph))
    wanted = {i for group in groups for i in group.tensors if i not in inside}
    bounds = {i: (np.zeros(n := graph.nodes[i].type.shape[-1]), np.zeros(n)) for i in wanted}

    def keep(node: Node, value: Array) -> None:
        if node.id in bounds:
            rows = value.reshape(-1, value.shape[-1])
            low, high = bounds[node.id]
            bounds[node.id] = np.minimum(low, rows.min(axis=0)), np.maximum(high, rows.max(axis=0))

    done = 0
    for batch in batches(data, graph) if wanted else ():
        with np.errstate(over="ignore", invalid="ignore"):
            observe(batch.graphs[0], batch.inputs, keep)
        if not all(np.isfinite(both).all() for both in bounds.values()):
            raise not_finite(graph, data, done, batch.count)
        done += batch.count
    return {i: high - low for i, (low, high) in bounds.items()}


def _rewrite(graph: Graph, factors: Mapping[int, Array]) -> Graph:
    """The graph with weights and biases changed so that each tensor of `factors` is divided by its own."""
    changes = {node.id: change for node in graph.nodes if (change := _changed(graph, node, factors)) is not None}

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        if isinstance(node.op, Param):  # With a single reader it changes in place, and keeps its name.
            users = graph.users[node.id]
            if len(users) != 1 or users[0] not in changes or node.id in graph.outputs:
                return None
            return builder.param(node.name, changes[users[0]][1], None, node.sources)
        position, values = changes.get(node.id, (0, None))
        if values is None:
            return None
        operands = [ids[i] for i in node.inputs]
        held = graph.nodes[node.inputs[position]]
        if not (isinstance(held.op, Param) and len(graph.users[held.id]) == 1 and held.id not in graph.outputs):
            operands[position] = builder.param(held.name, values)
        return builder.add(node.op, operands, node.name, None, node.sources)

    return remove_dead(rebuild(graph, rule))


def _changed(graph: Graph, node: Node, factors: Mapping[int, Array]) -> tuple[int, Array] | None:
    """Which operand of a layer or a bias changes, and its new values; None where nothing does."""
    position, values = _constant_part(graph, node)
    if values is None or not {node.id, node.inputs[1 - position]} & set(factors):
        return None
    x, out, wide = factors.get(node.inputs[0], np.ones(1)), factors.get(node.id, np.ones(1)), values.astype(np.float64)
    if isinstance(node.op, Binary):
        vector = channel_vector(wide, node) if node.id in factors else None
        if vector is None:
            return None
        wide = vector / out
    elif isinstance(node.op, MatMul):
        wide = wide * x[:, None] / out
    else:
        inputs = _by_group(node, wide, x) if node.inputs[0] in factors else x
        wide = wide * inputs / out[:, None, None, None]
    return position, wide.astype(np.float32)


def _constant_part(graph: Graph, node: Node) -> tuple[int, Array | None]:
    """Where a layer's weights or a bias are among a node's operands, and their values."""
    if is_anchor(graph, node):
        return 1, graph.constant(graph.nodes[node.inputs[1]])
    found = constant_operand(graph, node) if isinstance(node.op, Binary) else None
    return (0, None) if found is None else found


def _by_group(node: Node, weights: Array, factors: Array) -> Array:
    """Factors of a convolution's input channels, to multiply its weights [C_out, kH, kW, C/groups]."""
    assert isinstance(node.op, Conv)
    by_group = factors.reshape(node.op.groups, 1, 1, weights.shape[3])
    return np.repeat(by_group, weights.shape[0] // node.op.groups, axis=0)
