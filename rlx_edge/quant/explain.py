"""Why an int8 model is as good as it is: each tensor's range, each layer's loss, and which layers matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from rlx_edge.coverage import REACH, SHARE, Coverage, coverage
from rlx_edge.data import Data
from rlx_edge.ir import Array, DType, Graph, Node
from rlx_edge.ir.ops import MOVES, Leaf, Pad, QConv2d, QMatMul
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.pipeline import prepare
from rlx_edge.quant.assign import fixed_params
from rlx_edge.quant.batches import Batch, batches, samples_within
from rlx_edge.quant.calibrate import Calibration
from rlx_edge.quant.isolated import real, run_isolated
from rlx_edge.quant.masks import METHOD as MASK
from rlx_edge.quant.masks import masked_ranges
from rlx_edge.quant.observers import Range
from rlx_edge.quant.quality import (
    MEMORY_BYTES,
    Sums,
    class_labels,
    hits,
    judged,
    mask_limits,
    output_pairs,
    pairs,
    quantized_inputs,
    same_top,
)
from rlx_edge.quant.schemes import LARGEST_SCALE, activation_params
from rlx_edge.quant.sensitivity import Pairing, Variant, run_variants
from rlx_edge.reference.fast_integer import run_all

Progress = Callable[[int, int], None]
"""Called with the steps done and the steps in all."""

SENSITIVITY_SAMPLES = (8, 128)
"""At least and at most so many samples judge each layer's turn as a float layer: as many as the work allows."""

SENSITIVITY_WORK = 200_000_000
"""Tensor elements to compute for it, about 4 s on one core."""

POOR_DB = 10.0
"""An output below this is worth a line."""

NO_LAYERS = (Leaf, *MOVES, Pad)
"""Inputs and constants, and ops that round nothing."""

FIXED, OPERANDS, READERS = "fixed", "operand's", "reader's"
"""How a tensor came by its parameters where not by its own range: set by the op, taken over from an operand, or from
a reader (a concatenation)."""


@dataclass(frozen=True)
class TensorExplanation:
    """A tensor of the int8 model.

    `low` and `high` are its calibrated range in real values and `method` how its parameters were chosen; `clipped` is
    the share of the float model's values that its codes do not cover; `sqnr_db` compares the whole int8 model.
    """

    name: str
    sqnr_db: float
    scale: float
    zero_point: int
    low: float
    high: float
    method: str
    clipped: float


@dataclass(frozen=True)
class LayerExplanation:
    """A layer's SQNR against float: with the errors of all int8 layers before it, and alone, on float inputs rounded
    to its input parameters. `weight_bits`: what its weights are stored in, None for a layer without."""

    name: str
    op: str
    weight_bits: int | None
    sqnr_db: float
    isolated_db: float


@dataclass(frozen=True)
class Sensitivity:
    """What the output gains if this layer alone stays float: SQNR in dB, agreement, and top-1 where there are labels,
    both in samples of 1."""

    name: str
    gain_db: float
    gain_agreement: float | None
    gain_top1: float | None


@dataclass(frozen=True)
class Explanation:
    """All of it, over `samples` samples; the sensitivity over `sensitivity_samples`, the greatest gain first.

    `output_sqnr_db` and `agreement` are those of quality.py. `top1` is (float, int8) where the data have class labels.
    `warnings` name tensors that the calibration hardly covers, a line each, and an output that int8 keeps badly.
    """

    output_sqnr_db: float
    agreement: float | None
    tensors: tuple[TensorExplanation, ...]
    samples: int
    layers: tuple[LayerExplanation, ...]
    sensitivity: tuple[Sensitivity, ...]
    sensitivity_samples: int
    top1: tuple[float, float] | None = None
    warnings: tuple[str, ...] = ()


@dataclass
class _Totals:
    """What one pass over the data adds up, by tensor name."""

    tensors: dict[str, Sums]
    isolated: dict[str, Sums]
    limits: Mapping[str, float]
    coverage: dict[str, Coverage] = field(default_factory=dict)
    outputs: Sums = field(default_factory=Sums)
    agreed: int = 0
    hits: list[int] = field(default_factory=lambda: [0, 0])


def explain(
    float_graph: Graph,
    int8_graph: Graph,
    calibration: Calibration,
    data: Data,
    *,
    sensitivity_samples: int | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Measure an int8 graph against its float graph on data for the float graph.

    `float_graph` is what was calibrated and quantized (the equalized graph, where equalize.py made one). The int8 side
    runs with its exact integers. `sensitivity_samples` evenly spaced samples serve the sensitivity: 0 leaves it out,
    None takes what runs in a few seconds, 8 to 128, or none where weights have fewer bits than 8: those make up for the
    errors of the layers before them, so that a layer in float would lose.
    Raises ModelError or DataError where graphs and data do not fit together.
    """
    prepared, int8_graph = prepare(float_graph), freeze(int8_graph)  # So that multipliers are worked out once.
    named = pairs(prepared, int8_graph)
    limits = mask_limits(prepared, (*named, *judged(prepared, int8_graph)))
    totals = _Totals({b.name: Sums() for _, b in named}, {b.name: Sums() for _, b in named}, limits)
    steps = _Steps(progress, 2 * len(data))
    labels = class_labels(data, int8_graph)
    most = samples_within(MEMORY_BYTES, prepared, int8_graph)
    done = 0
    for batch in batches(data, prepared, int8_graph, most=most):
        _add(batch, prepared, int8_graph, named, totals, None if labels is None else labels[done : done + batch.count])
        done += batch.count
        steps.advance(batch.count)
    layers = tuple((a, b) for a, b in named if not isinstance(b.op, NO_LAYERS))
    wanted = _affordable(int8_graph, len(layers)) if sensitivity_samples is None else sensitivity_samples
    sensitivity, count = _sensitivity(prepared, int8_graph, data, layers, wanted, most)
    steps.advance(len(data))
    ranges = {**calibration.ranges, **masked_ranges(prepared, calibration.ranges)}
    tensors = tuple(_tensor(int8_graph, b, ranges, totals) for _, b in named)
    return Explanation(
        output_sqnr_db=totals.outputs.db,
        agreement=totals.agreed / len(data) if int8_graph.output_nodes[0].type.elements > 1 else None,
        tensors=tensors,
        samples=len(data),
        layers=tuple(
            LayerExplanation(
                *(b.name, b.op.kind_name, _weight_bits(int8_graph, b)),
                *(totals.tensors[b.name].db, totals.isolated[b.name].db),
            )
            for _, b in layers
        ),
        sensitivity=sensitivity,
        sensitivity_samples=count,
        top1=None if labels is None else (totals.hits[0] / len(data), totals.hits[1] / len(data)),
        warnings=(*_uncovered(int8_graph, tensors, ranges, totals), *_poor(totals.outputs.db)),
    )


def _affordable(graph: Graph, layers: int) -> int:
    """Samples for the sensitivity: each layer's turn computes the half of the tensors that follow, on average."""
    if any(node.type.dtype in (DType.I4, DType.I2) for node in graph.nodes):
        return 0
    elements = sum(node.type.elements for node in graph.nodes if graph.constant(node) is None)
    least, most = SENSITIVITY_SAMPLES
    return max(least, min(most, SENSITIVITY_WORK // max(1, elements * layers // 2)))


@dataclass
class _Steps:
    progress: Progress | None
    total: int
    done: int = 0

    def advance(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(self.done, self.total)


def _add(
    batch: Batch, prepared: Graph, int8: Graph, named: list[tuple[Node, Node]], totals: _Totals, labels: Array | None
) -> None:
    reference, quantized = batch.graphs
    expected = run_all(reference, batch.inputs)
    codes = run_all(quantized, quantized_inputs(quantized, batch.inputs))
    for a, b in named:
        totals.tensors[b.name].add(expected[a.name], real(b, codes[b.name]), totals.limits[b.name])
        _cover(b, expected[a.name], totals)
    for a, b in judged(prepared, int8):
        totals.outputs.add(expected[a.name], real(b, codes[b.name]), totals.limits[b.name])
    first_a, first_b = output_pairs(prepared, int8)[0]
    tops = (expected[first_a.name], codes[first_b.name])
    totals.agreed += same_top(*tops, batch.count)
    if labels is not None:
        for i, values in enumerate(tops):
            totals.hits[i] += hits(values, labels)
    shared = {b.name: expected[a.name] for a, b in named}

    def keep(node: Node, value: Array) -> None:
        totals.isolated[node.name].add(shared[node.name], value, totals.limits[node.name])

    run_isolated(quantized, shared, keep)


def _cover(node: Node, values: Array, totals: _Totals) -> None:
    """Which of a tensor's float values the codes cover; masks do not count."""
    assert node.type.quant is not None
    plain = values[np.abs(values) < totals.limits[node.name]]
    if node.type.quant.axis is not None or not plain.size:
        return
    found, earlier = coverage(plain, node.type.quant), totals.coverage.get(node.name)
    totals.coverage[node.name] = found if earlier is None else earlier.joined(found)


def _sensitivity(
    prepared: Graph, int8: Graph, data: Data, layers: tuple[tuple[Node, Node], ...], wanted: int, most: int
) -> tuple[tuple[Sensitivity, ...], int]:
    """The gain of each layer, and the samples that it was measured on."""
    count = min(wanted, len(data))
    if count == 0:
        return (), 0
    chosen = np.arange(count) * len(data) // count
    some = Data({name: values[chosen] for name, values in data.inputs.items()})
    labels = class_labels(data, int8)
    names = frozenset(b.name for _, b in pairs(prepared, int8))
    limits = mask_limits(prepared, judged(prepared, int8))
    pairing = Pairing(layers, tuple(judged(prepared, int8)), output_pairs(prepared, int8)[0], names, limits)
    variants = [Variant(Sums(), []) for _ in range(len(layers) + 1)]
    expected_first: list[Array] = []
    for batch in batches(some, prepared, int8, most=most):
        expected = run_all(batch.graphs[0], batch.inputs)
        run_variants(batch, expected, quantized_inputs(batch.graphs[1], batch.inputs), pairing, variants)
        expected_first.append(expected[pairing.first[0].name].reshape(batch.count, -1))
    tops = [np.concatenate(variant.outputs).argmax(axis=1) for variant in variants]
    float_top = np.concatenate(expected_first).argmax(axis=1)
    single = int8.output_nodes[0].type.elements == 1
    found = [
        Sensitivity(
            name=b.name,
            gain_db=variant.sums.db - variants[0].sums.db if np.isfinite(variants[0].sums.db) else 0.0,
            gain_agreement=None if single else float(np.mean(top == float_top) - np.mean(tops[0] == float_top)),
            gain_top1=None
            if labels is None
            else float(np.mean(top == labels[chosen]) - np.mean(tops[0] == labels[chosen])),
        )
        for (_, b), variant, top in zip(layers, variants[1:], tops[1:], strict=True)
    ]
    return tuple(sorted(found, key=lambda s: -s.gain_db)), len(chosen)


def _tensor(graph: Graph, node: Node, ranges: Mapping[str, Range], totals: _Totals) -> TensorExplanation:
    quant = node.type.quant
    assert quant is not None
    known = ranges.get(node.name)
    found = totals.coverage.get(node.name)
    return TensorExplanation(
        name=node.name,
        sqnr_db=totals.tensors[node.name].db,
        scale=quant.scale,
        zero_point=quant.zero_point,
        low=known.low if known else found.low if found else 0.0,
        high=known.high if known else found.high if found else 0.0,
        method=_method(graph, node, known),
        clipped=found.clipped if found else 0.0,
    )


def _method(graph: Graph, node: Node, known: Range | None) -> str:
    quant = node.type.quant
    if fixed_params(node) == quant:
        return FIXED
    if known is not None and quant == activation_params(known):
        return known.method
    if any(operand.type.quant == quant for operand in graph.operands(node)):
        return OPERANDS
    return READERS


def _poor(output_sqnr_db: float) -> Iterator[str]:
    if output_sqnr_db < POOR_DB:
        yield (
            f"the output's signal-to-noise ratio is {output_sqnr_db:.1f} dB, where 20 and more is usual: int8 keeps "
            "little of this model; the figures of its layers tell where it is lost"
        )


def _uncovered(
    graph: Graph, tensors: tuple[TensorExplanation, ...], ranges: Mapping[str, Range], totals: _Totals
) -> Iterator[str]:
    """Tensors that these data take well beyond their calibration, more than the method clips on purpose."""
    kinds = {node.name: node.op for node in graph.nodes}
    for tensor in tensors:
        known, whole = ranges.get(tensor.name), totals.coverage.get(tensor.name)
        if known is None or whole is None or tensor.method in (FIXED, OPERANDS, READERS):
            continue
        if tensor.scale >= LARGEST_SCALE:
            continue  # Calibration has said so.
        on_purpose = known.clipped > 0 or known.method == MASK
        if tensor.clipped > max(SHARE, 2 * known.clipped) or (whole.reach > REACH and not on_purpose):
            name = tensor.name.rsplit(";", 1)[-1]  # Of TFLite's fused tensors, which join several.
            yield (
                f"{kinds[tensor.name].kind_name} {name!r} goes beyond its calibration: {whole.text()}; "
                "calibrate on data like these"
            )


def _weight_bits(graph: Graph, node: Node) -> int | None:
    return graph.operand_types(node)[1].dtype.bits if isinstance(node.op, QConv2d | QMatMul) else None


__all__ = ["Explanation", "LayerExplanation", "Sensitivity", "TensorExplanation", "explain"]
