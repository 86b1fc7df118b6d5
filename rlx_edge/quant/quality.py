"""How much of a float model an int8 model keeps, measured on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx_edge.data import Data
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import Input, Leaf, Softmax
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.batches import batches
from rlx_edge.reference import run_all
from rlx_edge.reference.fixedpoint import dequantize_f32, quantize_f32


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
    largest output, or None where the output is a single number.
    """

    output_sqnr_db: float
    agreement: float | None
    tensors: tuple[TensorQuality, ...]
    samples: int


@dataclass
class _Sums:
    signal: float = 0.0
    noise: float = 0.0

    def add(self, expected: Array, found: Array) -> None:
        wide = expected.astype(np.float64)
        self.signal += float(np.sum(wide * wide))
        self.noise += float(np.sum((found.astype(np.float64) - wide) ** 2))

    @property
    def db(self) -> float:
        if self.noise == 0:
            return float("inf")
        return float(10 * np.log10(self.signal / self.noise)) if self.signal > 0 else float("-inf")


@dataclass
class _Totals:
    tensors: dict[str, _Sums] = field(default_factory=dict)
    outputs: _Sums = field(default_factory=_Sums)
    agreed: int = 0


def quality(float_graph: Graph, int8_graph: Graph, data: Data) -> Quality:
    """Compare the two on data for the float graph. Raises ModelError or DataError where they do not fit together."""
    prepared = prepare(float_graph)
    pairs = _pairs(prepared, int8_graph)
    totals = _Totals({node.name: _Sums() for _, node in pairs})
    judged = _judged(prepared, int8_graph)
    for batch in batches(data, prepared, int8_graph):
        reference, quantized = batch.graphs
        expected = run_all(reference, batch.inputs)
        found = _real_values(quantized, _quantized_inputs(quantized, batch.inputs))
        for a, b in pairs:
            totals.tensors[b.name].add(expected[a.name], found[b.name])
        for a, b in judged:
            totals.outputs.add(expected[a.name], found[b.name])
        first_a, first_b = _outputs(prepared, int8_graph)[0]
        totals.agreed += _same_top(expected[first_a.name], found[first_b.name], batch.count)
    tensors = []
    for _, node in pairs:
        assert node.type.quant is not None
        quant = node.type.quant
        tensors.append(TensorQuality(node.name, totals.tensors[node.name].db, quant.scale, quant.zero_point))
    agreement = totals.agreed / len(data) if int8_graph.output_nodes[0].type.elements > 1 else None
    return Quality(totals.outputs.db, agreement, tuple(tensors), len(data))


def _computed(node: Node) -> bool:
    return isinstance(node.op, Input) or not isinstance(node.op, Leaf)


def _pairs(float_graph: Graph, int8_graph: Graph) -> list[tuple[Node, Node]]:
    """Tensors that both graphs hold under one name, in the int8 graph's order."""
    named = {node.name: node for node in float_graph.nodes if _computed(node) and node.type.dtype is DType.F32}
    return [(named[n.name], n) for n in int8_graph.nodes if _computed(n) and n.name in named and n.type.quant]


def _outputs(float_graph: Graph, int8_graph: Graph) -> list[tuple[Node, Node]]:
    return list(zip(float_graph.output_nodes, int8_graph.output_nodes, strict=True))


def _judged(float_graph: Graph, int8_graph: Graph) -> list[tuple[Node, Node]]:
    """The outputs, or the logits where an output is a softmax and both graphs hold them under one name."""
    named = {node.name: node for node in int8_graph.nodes}
    found = []
    for a, b in _outputs(float_graph, int8_graph):
        logits = float_graph.nodes[a.inputs[0]] if isinstance(a.op, Softmax) else a
        found.append((logits, named[logits.name]) if logits.name in named else (a, b))
    return found


def _quantized_inputs(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {
        node.name: inputs[node.name] if node.type.quant is None else quantize_f32(inputs[node.name], node.type.quant)
        for node in graph.inputs
    }


def _real_values(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor's real values by name."""
    values = run_all(graph, inputs)
    quant = {node.name: node.type.quant for node in graph.nodes}
    return {name: v if (q := quant[name]) is None else dequantize_f32(v, q) for name, v in values.items()}


def _same_top(expected: Array, found: Array, count: int) -> int:
    """How many of `count` samples have the same largest output."""
    flat = [values.reshape(count, -1) for values in (expected, found)]
    return int(np.sum(flat[0].argmax(axis=1) == flat[1].argmax(axis=1)))
