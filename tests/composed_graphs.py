"""Hypothesis strategy: int8 graphs of several ops, branching and joining, from the single-op graphs of op_graphs.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st
from op_graphs import OPS, draw_legal

from rlx_edge.ir import Array, DType, Graph, GraphBuilder, Node, QuantParams, Requant, TensorType
from rlx_edge.ir.ops import Dequantize, Input, Pad, Quantize, Reduce, ReduceOp, Reshape

LARGEST_REAL_IN_CODES = 2.0**24
"""TFLite's kernels convert a quotient beyond int32 to an integer, which C leaves undefined."""

TFLITE_OPS = sorted(name for name in OPS if not name.endswith("_onnx") and name != "dequant_matmul")
"""The strategies whose scales TFLite's rules take; the others are the same ops again, or float32."""


@dataclass
class Composer:
    """A graph in the making: every single-op graph drawn reads tensors that are there, or new inputs."""

    data: st.DataObject
    builder: GraphBuilder = field(default_factory=lambda: GraphBuilder("composed"))
    tensors: list[int] = field(default_factory=list)

    def append(self, op: str) -> None:
        """Copy a legal graph of this op, its inputs replaced by tensors that are there, or by inputs."""
        graph = draw_legal(self.data, op)
        ids: dict[int, int] = {}
        for node in graph.nodes:
            if isinstance(node.op, Input):
                ids[node.id] = self.operand(node)
            else:
                ids[node.id] = self.builder.copy(node, [ids[i] for i in node.inputs], graph)
        self.tensors.append(ids[graph.outputs[0]])

    def operand(self, wanted: Node) -> int:
        if not self.tensors or self.data.draw(st.booleans()):
            return self.builder.input(wanted.name, wanted.type)
        x = self.data.draw(st.sampled_from(self.tensors))
        if wanted.type.dtype is DType.F32:
            return self.as_reals(x, wanted)
        return self.fitted(self.as_codes(x), wanted.type)

    def as_codes(self, x: int) -> int:
        if self.builder[x].type.dtype is DType.I8:
            return x
        quant = QuantParams.per_tensor(_scale_for(self.builder[self.builder[x].inputs[0]].type), 3)
        return self.builder.add(Quantize.to(quant, Requant.TFLM), [x], "codes", quant)

    def as_reals(self, x: int, wanted: Node) -> int:
        """A float32 input of its own where the codes of what is there would be beyond int32."""
        x = self.as_codes(x)
        quant = self.builder[x].type.quant
        assert quant is not None
        if quant.scale > 1.0:
            return self.builder.input(wanted.name, wanted.type)
        target = TensorType(wanted.type.shape, DType.I8, quant)
        return self.builder.add(Dequantize.of(quant), [self.fitted(x, target)], "reals")

    def fitted(self, x: int, wanted: TensorType) -> int:
        """The tensor made to have this shape and these parameters: padded, averaged and requantized."""
        held = self.builder[x].type
        if held == wanted:
            return x
        assert held.quant is not None and wanted.quant is not None
        rows = -(-held.elements // wanted.elements)
        flat = self.builder.add(Reshape((held.elements,)), [x], "flat", held.quant)
        missing = rows * wanted.elements - held.elements
        if missing:
            flat = self.builder.add(Pad(((0, missing),)), [flat], "filled", held.quant)
        if rows > 1:
            table = self.builder.add(Reshape((rows, wanted.elements)), [flat], "table", held.quant)
            flat = self.builder.add(Reduce(ReduceOp.MEAN, (0,), False, Requant.TFLM), [table], "averaged", wanted.quant)
        elif held.quant != wanted.quant:
            flat = self.builder.add(Quantize.to(wanted.quant, Requant.TFLM), [flat], "requantized", wanted.quant)
        return self.builder.add(Reshape(wanted.shape), [flat], "fitted", wanted.quant)


def _scale_for(type: TensorType) -> float:
    assert type.quant is not None
    return float(np.float32(type.quant.scale * 1.5))


def compose(data: st.DataObject, without: Sequence[str] = ()) -> Graph:
    """One to six ops, with one to three outputs; the last op's among them."""
    composer = Composer(data)
    names = sorted(set(TFLITE_OPS) - set(without))
    for op in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=6)):
        composer.append(op)
    last = composer.tensors[-1]
    others = data.draw(st.lists(st.sampled_from(composer.tensors), max_size=2))
    return composer.builder.build([last, *others])


def extreme_inputs(graph: Graph, seed: int) -> dict[str, Array]:
    """Random values with many at both ends of int8; reals with ties and of all magnitudes, but within int32 codes."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for node in graph.inputs:
        shape = node.type.shape
        if node.type.dtype is DType.I8:
            ends = rng.choice([-128, -127, 127], shape)
            values = np.where(rng.random(shape) < 0.2, ends, rng.integers(-128, 128, shape))
            inputs[node.name] = values.astype(np.int8)
            continue
        scale = min(_quantizing_scales(graph, node), default=1.0)
        ties = (rng.integers(-300, 300, shape) + 0.5) * scale
        wide = rng.normal(size=shape) * 2.0 ** rng.integers(-30, 20, shape) * scale
        limit = LARGEST_REAL_IN_CODES * scale
        inputs[node.name] = np.clip(np.where(rng.random(shape) < 0.5, ties, wide), -limit, limit).astype(np.float32)
    return inputs


def _quantizing_scales(graph: Graph, node: Node) -> list[float]:
    users = [graph.nodes[i] for i in graph.users[node.id]]
    return [user.op.scales[0] for user in users if isinstance(user.op, Quantize)]
