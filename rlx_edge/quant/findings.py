"""What a person should know of a calibration: tensors and weights of which int8 keeps little or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from rlx_edge.ir import Array, Graph, Node, QuantParams
from rlx_edge.ir.ops import Binary, Conv, MatMul
from rlx_edge.passes.fuse import Fusion, find_fusions, fused_away
from rlx_edge.quant.assign import OWN_RANGE, assign_params
from rlx_edge.quant.masks import mask_findings
from rlx_edge.quant.observers import Range, Seen
from rlx_edge.quant.schemes import BIAS_MAX, LARGEST_SCALE, SMALLEST_SCALE, WEIGHT_MAX, weight_params
from rlx_edge.reference.fixedpoint import quantize_f32

SHOWN = 8
"""Channel numbers that a message lists."""

RAISED = 1.01
"""A weight scale that a bias raises by less is not worth a line."""


def findings(graph: Graph, ranges: Mapping[str, Range], seen: Mapping[str, Seen] | None = None) -> Iterator[str]:
    """A line for each tensor, constant or layer of a prepared float graph that int8 keeps badly, and says why.

    Tensors that never vary, that vanish beside their scale, or that exceed the largest one; masks; channels that never
    change (where `seen` tells the channels' extremes), whose weights are 0 or become 0, or whose bias is too large.
    """
    fusions = find_fusions(graph)
    params = assign_params(graph, fusions, ranges)
    inside = fused_away(graph, fusions)
    yield from mask_findings(graph, ranges)
    for node in graph.nodes:
        if node.id in inside:
            continue
        values = graph.constant(node)
        if values is not None:
            if any(isinstance(graph.nodes[user].op, Binary) for user in graph.users[node.id]):
                yield from _vanished(node, Range(float(values.min()), float(values.max())), params[node.id])
        elif isinstance(node.op, OWN_RANGE):
            yield from _tensor(node, ranges[node.name], params[node.id])
        if node.id in fusions and isinstance(fusions[node.id].anchor.op, Conv | MatMul):
            yield from _layer(graph, fusions[node.id], params, (seen or {}).get(node.name))


def _tensor(node: Node, known: Range, quant: QuantParams) -> Iterator[str]:
    vanished = list(_vanished(node, known, quant))
    yield from vanished
    if known.is_constant and node.type.elements > 1 and not vanished:
        scale = "a scale of 1" if known.low == 0 else "a scale that covers 0 and this value"
        yield f"{_named(node)} is {known.low or 0:g} in every sample; it gets {scale}"
    if quant.scale >= LARGEST_SCALE:
        yield (
            f"{_named(node)} reaches {max(-known.low, known.high):g}, more than the largest scale, {LARGEST_SCALE:g}, "
            "covers: it is clipped; scale the model down before export"
        )


def _vanished(node: Node, known: Range, quant: QuantParams) -> Iterator[str]:
    """Whether a tensor that is not 0 is all 0 at its parameters."""
    bounds = np.array([known.low, known.high], np.float32)
    if (known.low or known.high) and np.all(quantize_f32(bounds, quant) == quant.zero_point):
        largest = max(-known.low, known.high)
        yield (
            f"{_named(node)} reaches {largest:g} only, too little for its scale of {quant.scale:g}: it becomes 0 "
            "throughout"
        )


def _layer(graph: Graph, fusion: Fusion, params: Mapping[int, QuantParams], seen: Seen | None) -> Iterator[str]:
    """A convolution or dense layer's output channels: which are dead, and which weights do not survive."""
    anchor = fusion.anchor
    values = graph.constant(graph.nodes[anchor.inputs[1]])
    if values is None or (isinstance(anchor.op, MatMul) and values.ndim != 2):
        return
    axis = 0 if isinstance(anchor.op, Conv) else 1
    others = tuple(i for i in range(values.ndim) if i != axis)
    used: Array = np.asarray(values.any(axis=others))
    zero = ~used
    if zero.any():
        yield (
            f"{_named(anchor)}: the weights of {_channels(np.flatnonzero(zero), len(zero))} are 0: their outputs are "
            "their bias, and they take the largest scale of the other channels"
        )
    bias = np.zeros(len(zero)) if fusion.bias is None else fusion.bias
    x_scale = params[anchor.inputs[0]].scale
    scales = np.array(weight_params(values, axis, bias, x_scale).scales)
    largest = np.abs(values).max(axis=others).astype(np.float64)
    lost: Array = used & (largest < scales / 2)
    if lost.any():
        yield (
            f"{_named(anchor)}: the weights of {_channels(np.flatnonzero(lost), len(lost))} become 0: they are too "
            f"small for the smallest scale, {SMALLEST_SCALE:g}, or beside their bias"
        )
    if seen is not None and seen.count > len(zero) == seen.channel_low.size:
        yield from _dead(anchor, seen, zero | lost)
        yield from _faint(anchor, seen, params[fusion.last.id].scale, zero | lost)
    yield from _raised(anchor, bias, scales, np.where(zero | lost, np.inf, largest), x_scale)


def _dead(anchor: Node, seen: Seen, known: Array) -> Iterator[str]:
    """Channels that never change and are not `known`; where all are so, the tensor's own line says it."""
    same = seen.channel_low == seen.channel_high
    dead = np.flatnonzero(same & ~known)
    if not dead.size or same.all():
        return
    state = "0 in every sample (dead)" if not seen.channel_high[dead].any() else "the same in every sample"
    yield f"{_named(anchor)}: {_channels(dead, len(same))} are {state}"


def _faint(anchor: Node, seen: Seen, scale: float, known: Array) -> Iterator[str]:
    """Channels of which no code but 0 is left beside the others; where all are so, the tensor's own line says it."""
    reach = np.maximum(np.abs(seen.channel_low), np.abs(seen.channel_high))
    faint: Array = (reach > 0) & (reach < scale / 2)
    if not faint.all() and (faint & ~known).any():
        which = np.flatnonzero(faint & ~known)
        most = reach[which].max()
        yield (
            f"{_named(anchor)}: {_channels(which, len(faint))} become 0 throughout: they reach {most:.3g} at most, too "
            f"little for their tensor's scale of {scale:.3g}; equalization may help"
        )


def _raised(anchor: Node, bias: Array, scales: Array, largest: Array, x_scale: float) -> Iterator[str]:
    """Channels whose weights lose codes because their bias asks for a larger scale than `largest`, max |w|, does."""
    most_code = WEIGHT_MAX[8]
    factor = scales * most_code / largest
    over = (factor > RAISED) & (np.abs(bias) * most_code > BIAS_MAX * x_scale * largest)
    if over.any():
        most = factor[over].max()
        yield (
            f"{_named(anchor)}: the bias of {_channels(np.flatnonzero(over), len(over))} does not fit int32 at x_scale "
            f"* w_scale: their weight scale is raised, up to {most:.3g} times, which leaves their weights codes up to "
            f"{most_code / most:.0f} instead of {most_code}"
        )


def _named(node: Node) -> str:
    """A node as messages name it; of a name that joins several by semicolons (TFLite's fused tensors), the last."""
    return str(replace(node, name=node.name.rsplit(";", 1)[-1]))


def _channels(which: Array, total: int) -> str:
    """`2 of 8 output channels (0, 5)`."""
    listed = ", ".join(str(int(c)) for c in which[:SHOWN])
    return f"{len(which)} of {total} output channels ({listed}{', ...' if len(which) > SHOWN else ''})"
