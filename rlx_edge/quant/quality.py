"""How much of a float model an int8 model keeps, measured on data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, DType, Graph, Node, QuantParams
from rlx_edge.ir.ops import Input, Leaf, Softmax
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.batches import batches, samples_within
from rlx_edge.quant.masks import FACTOR, LEAST, reached
from rlx_edge.reference.fast_integer import run_all
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32

MEMORY_BYTES = 128 << 20
"""What the tensors of a batch may take, in both graphs together."""


@dataclass(frozen=True)
class TensorQuality:
    """One tensor of the int8 model beside the float model's of the same name."""

    name: str
    sqnr_db: float
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Quality:
    """SQNR is 10 log10(sum of squares / sum of squared errors) over all samples; infinite without any error.

    The output's is taken before a final softmax, which hides errors. `agreement` is the share of samples with the same
    largest output, or None where the output is a single number; `top1`: the shares of the float and of the int8 model
    that are right, where there are labels. Masks (masks.py) do not count.
    """

    output_sqnr_db: float
    agreement: float | None
    tensors: tuple[TensorQuality, ...]
    samples: int
    top1: tuple[float, float] | None = None


@dataclass
class Sums:
    """Signal and noise of one tensor, over all samples so far."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, expected: Array, found: Array, limit: float = math.inf) -> None:
        """Take in float values and what an int8 node has for them, as real values; those from `limit` on are masks,
        and left out."""
        wide, error = expected.astype(np.float64), found.astype(np.float64)
        error -= wide
        if max(float(wide.max()), -float(wide.min())) >= limit:
            plain = np.abs(wide) < limit
            wide, error = wide[plain], error[plain]
        self.signal += _squares(wide)
        self.noise += _squares(error)

    @property
    def db(self) -> float:
        if self.noise == 0:
            return float("inf")
        return float(10 * np.log10(self.signal / self.noise)) if self.signal > 0 else float("-inf")


def _squares(values: Array) -> float:
    """The sum of squares, without BLAS, whose threads cost more than they bring here."""
    flat = values.reshape(-1)
    return float(np.einsum("i,i->", flat, flat))


def mask_limits(float_graph: Graph, compared: Iterable[tuple[Node, Node]]) -> dict[str, float]:
    """From where on the float values of (float, int8) nodes are masks, by the int8 node's name; infinite for most."""
    masked = reached(float_graph)
    return {b.name: _mask_limit(b.type.quant) if a.id in masked else math.inf for a, b in compared}


def _mask_limit(quant: QuantParams | None) -> float:
    if quant is None or quant.axis is not None:
        return math.inf
    reach = max(-128 - quant.zero_point, 127 - quant.zero_point, key=abs)
    return 0.9 * max(LEAST, FACTOR * abs(reach) * quant.scale)  # A mask has a value added to it.


@dataclass
class _Totals:
    tensors: dict[str, Sums] = field(default_factory=dict)
    outputs: Sums = field(default_factory=Sums)
    agreed: int = 0
    hits: list[int] = field(default_factory=lambda: [0, 0])


def quality(float_graph: Graph, int8_graph: Graph, data: Data) -> Quality:
    """Compare the two on data for the float graph. Raises ModelError or DataError where they do not fit together.

    The int8 graph runs with its exact integers, the float graph in float32 (reference/fast.py).
    """
    prepared, int8_graph = prepare(float_graph), freeze(int8_graph)  # So that multipliers are worked out once.
    named = pairs(prepared, int8_graph)
    totals = _Totals({node.name: Sums() for _, node in named})
    compared = judged(prepared, int8_graph)
    limits = mask_limits(prepared, (*named, *compared))
    first_a, first_b = output_pairs(prepared, int8_graph)[0]
    labels, done = class_labels(data, int8_graph), 0
    most = samples_within(MEMORY_BYTES, prepared, int8_graph)
    for batch in batches(data, prepared, int8_graph, most=most):
        reference, quantized = batch.graphs
        expected = run_all(reference, batch.inputs)
        found = real_values(quantized, run_all(quantized, quantized_inputs(quantized, batch.inputs)))
        for a, b in named:
            totals.tensors[b.name].add(expected[a.name], found[b.name], limits[b.name])
        for a, b in compared:
            totals.outputs.add(expected[a.name], found[b.name], limits[b.name])
        tops = expected[first_a.name], found[first_b.name]
        totals.agreed += same_top(*tops, batch.count)
        if labels is not None:
            for i, values in enumerate(tops):
                totals.hits[i] += hits(values, labels[done : done + batch.count])
        done += batch.count
    tensors = []
    for _, node in named:
        assert node.type.quant is not None
        quant = node.type.quant
        tensors.append(TensorQuality(node.name, totals.tensors[node.name].db, quant.scale, quant.zero_point))
    agreement = totals.agreed / len(data) if int8_graph.output_nodes[0].type.elements > 1 else None
    top1 = None if labels is None else (totals.hits[0] / len(data), totals.hits[1] / len(data))
    return Quality(totals.outputs.db, agreement, tuple(tensors), len(data), top1)


def _computed(node: Node) -> bool:
    return isinstance(node.op, Input) or not isinstance(node.op, Leaf)


def pairs(float_graph: Graph, int8_graph: Graph) -> list[tuple[Node, Node]]:
    """Tensors that both graphs hold under one name, in the int8 graph's order. The float graph is prepared."""
    named = {node.name: node for node in float_graph.nodes if _computed(node) and node.type.dtype is DType.F32}
    return [(named[n.name], n) for n in int8_graph.nodes if _computed(n) and n.name in named and n.type.quant]


def output_pairs(float_graph: Graph, int8_graph: Graph) -> list[tuple[Node, Node]]:
    return list(zip(float_graph.output_nodes, int8_graph.output_nodes, strict=True))


def judged(float_graph: Graph, int8_graph: Graph) -> list[tuple[Node, Node]]:
    """The outputs, or the logits where an output is a softmax and both graphs hold them under one name."""
    named = {node.name: node for node in int8_graph.nodes}
    found = []
    for a, b in output_pairs(float_graph, int8_graph):
        logits = float_graph.nodes[a.inputs[0]] if isinstance(a.op, Softmax) else a
        found.append((logits, named[logits.name]) if logits.name in named else (a, b))
    return found


def quantized_inputs(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Float inputs at the parameters of an int8 graph's inputs."""
    return {
        node.name: inputs[node.name] if node.type.quant is None else quantize_f32(inputs[node.name], node.type.quant)
        for node in graph.inputs
    }


def real_values(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor's real values by name."""
    quant = {node.name: node.type.quant for node in graph.nodes}
    return {name: v if (q := quant[name]) is None else dequantize_f32(v, q) for name, v in values.items()}


def same_top(expected: Array, found: Array, count: int) -> int:
    """How many of `count` samples have the same largest output."""
    flat = [values.reshape(count, -1) for values in (expected, found)]
    return int(np.sum(flat[0].argmax(axis=1) == flat[1].argmax(axis=1)))


def class_labels(data: Data, graph: Graph) -> Array | None:
    """The labels [samples] where they are class numbers of the first output; of an autoencoder, 0 and 1 are none."""
    labels, classes = data.labels, graph.output_nodes[0].type.elements
    if labels is None or not np.issubdtype(labels.dtype, np.integer) or labels.size != len(data) or classes < 2:
        return None
    flat = labels.reshape(-1)
    if flat.max() <= 1 and classes > 2 and [node.type.elements for node in graph.inputs] == [classes]:
        return None
    return flat if flat.min() >= 0 and flat.max() < classes else None


def hits(values: Array, labels: Array) -> int:
    """How many samples' largest output is that of the label [samples]."""
    return int(np.sum(values.reshape(len(labels), -1).argmax(axis=1) == labels))
