"""A float graph and its int8 form as PyTorch modules, tensor by tensor what `quant/simulate.py` computes in numpy.

Fusions are those of the int8 graph, so each tensor is bounded and rounded where the int8 model bounds and rounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlx_edge.ir import Array, Graph, Node, Requant, with_batch
from rlx_edge.ir.ops import MOVES, Concat, Conv, Input, Pool, ReduceOp, Softmax
from rlx_edge.passes.rebuild import channel_axis
from rlx_edge.qat import compute
from rlx_edge.qat.autograd import quantize_affine, straight
from rlx_edge.qat.layer import RATES, QatLayer
from rlx_edge.qat.rounding import TWICE, multiplier_of, right_shift, table_of
from rlx_edge.quant.assign import Assignment, float_bias, float_weights, weight_axis
from rlx_edge.quant.quantize import refuse_unsupported
from rlx_edge.quant.simulate import Simulation, fake_quantize

Taps = MutableMapping[str, Tensor]
"""Filled, where given, with each layer's result before bounds and rounding, by the layer's name."""


class Network(nn.Module):
    """Runs the graph of an assignment; subclasses say what a layer's weights are and how a tensor is stored.

    Inputs are real values [batch, *sample] in the order of `graph.inputs`, which are the source model's inputs.
    """

    def __init__(self, assignment: Assignment) -> None:
        super().__init__()
        self.assignment, self.graph = assignment, assignment.graph
        refuse_unsupported(self.graph)
        with_batch(self.graph, 2)  # Raises ModelError for a model that mixes samples.
        simulation = Simulation(assignment)
        self.nodes = [node for node in self.graph.nodes if simulation.stored(node)]
        self.operands = {node.id: simulation.operands(node) for node in self.nodes}
        compute.refuse(self.graph.name, [self.anchor(node) for node in self.nodes if node.inputs])
        self.constants = {}
        for id in simulation.constants:
            self.constants[id] = f"constant{id}"
            self.register_buffer(self.constants[id], torch.from_numpy(self.constant(id).copy()), persistent=False)

    def constant(self, id: int) -> Array:
        """The values of a constant operand."""
        values = self.graph.constant(self.graph.nodes[id])
        assert values is not None
        return values

    def layer(self, node: Node) -> tuple[Tensor, Tensor]:
        """A layer's weights, and its bias [C]."""
        raise NotImplementedError

    def stored(self, node: Node, value: Tensor) -> Tensor:
        """What the model keeps of a computed value."""
        raise NotImplementedError

    def forward(self, *inputs: Tensor) -> Any:
        """The output, or a tuple of them where there are several."""
        outputs = self.run(inputs, self.graph.outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Sequence[Tensor], wanted: Sequence[int], taps: Taps | None = None) -> tuple[Tensor, ...]:
        """The stored tensors of these nodes; `taps` gets the layers' results.

        On CUDA, convolutions are computed in float32: the ten bits of TF32 are too few to tell codes apart.
        """
        with torch.backends.cudnn.flags(allow_tf32=False):
            return self._run(inputs, wanted, taps)

    def _run(self, inputs: Sequence[Tensor], wanted: Sequence[int], taps: Taps | None) -> tuple[Tensor, ...]:
        given = {node.id: value for node, value in zip(self.graph.inputs, inputs, strict=True)}
        values: dict[int, Tensor] = {id: getattr(self, name) for id, name in self.constants.items()}
        for node in self.nodes:
            if isinstance(node.op, Input):
                values[node.id] = self.stored(node, given[node.id])
            else:
                values[node.id] = self.step(node, [values[i] for i in self.operands[node.id]], taps)
        return tuple(values[i] for i in wanted)

    def step(self, node: Node, x: list[Tensor], taps: Taps | None) -> Tensor:
        """A stored tensor from the values of its operands."""
        fusion, anchor = self.assignment.fusions.get(node.id), self.anchor(node)
        if node.id in self.assignment.layers:
            parts = self.layer(node)
            value = (
                compute.conv(anchor.op, x[0], *parts) if isinstance(anchor.op, Conv) else compute.dense(x[0], *parts)
            )
            if taps is not None:
                taps[node.name] = value
        else:
            value = compute.compute(anchor, x)
        if fusion is not None and (np.isfinite(fusion.low) or np.isfinite(fusion.high)):
            value = value.clamp(fusion.low, fusion.high)
        return self.stored(node, value)

    def anchor(self, node: Node) -> Node:
        """The node that computes what a stored tensor is bounded and rounded from."""
        fusion = self.assignment.fusions.get(node.id)
        return node if fusion is None else fusion.anchor


class FloatNetwork(Network):
    """The float model itself, which cannot be trained: what a trained one is compared with."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        for id in assignment.layers:
            fusion = assignment.fusions[id]
            self.register_buffer(f"weight{id}", _tensor(float_weights(self.graph, fusion)), persistent=False)
            self.register_buffer(f"bias{id}", _tensor(float_bias(self.graph, fusion)), persistent=False)

    def layer(self, node: Node) -> tuple[Tensor, Tensor]:
        return getattr(self, f"weight{node.id}"), getattr(self, f"bias{node.id}")

    def stored(self, node: Node, value: Tensor) -> Tensor:
        return value


class QatModule(Network):
    """The int8 model with weights, scales and biases that can be trained; `prepare` makes it, `convert` ends it.

    Every tensor has the values that the int8 model's has under the rule `requant`, but for few near ties.
    """

    def __init__(self, assignment: Assignment, requant: Requant) -> None:
        super().__init__(assignment)
        self.requant = requant
        self.layers = nn.ModuleDict()
        for id, given in assignment.layers.items():
            fusion = assignment.fusions[id]
            x_scale = assignment.params[fusion.anchor.inputs[0]].scale
            self.layers[str(id)] = QatLayer(fusion.last.name, weight_axis(fusion), given, x_scale)
        self.shifts = {node.id: right_shift(multiplier_of(node, assignment), requant) for node in self.nodes}
        for node in self.nodes:
            table = table_of(node, assignment, requant)
            if table is not None:
                self.register_buffer(f"table{node.id}", _tensor(table), persistent=False)

    def constant(self, id: int) -> Array:
        return fake_quantize(super().constant(id), self.assignment.params[id])

    def layer(self, node: Node) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = self.layers[str(node.id)]()
        return made

    def stored(self, node: Node, value: Tensor) -> Tensor:
        if isinstance(node.op, MOVES):
            return value
        quant = self.assignment.params[node.id]
        shift: Tensor | float = self.shifts[node.id]
        if node.id in self.assignment.layers:
            layer = self.layers[str(node.id)]
            shift = right_shift(layer.scale().detach() * (layer.x_scale / quant.scale), self.requant)
            shift = _along_channels(self.anchor(node), shift)
        return quantize_affine(value, quant.scale, quant.zero_point, shift)

    def step(self, node: Node, x: list[Tensor], taps: Taps | None) -> Tensor:
        quant = self.assignment.params[node.id]
        if isinstance(node.op, Concat):  # Its operands are requantized first.
            x = [self._requantized(id, value, node) for id, value in zip(self.operands[node.id], x, strict=True)]
        if isinstance(node.op, Pool) and node.op.kind is ReduceOp.MEAN:
            # On codes, so that ties, common among means of few, go as they do on int8.
            mean = compute.pool(node.op, straight(x[0] / quant.scale))
            made: Tensor = quantize_affine(mean, 1.0, quant.zero_point, codes_tie=self.requant in TWICE) * quant.scale
            return made
        value = super().step(node, x, taps)
        table = getattr(self, f"table{node.id}", None)
        if table is None:
            return value
        source = self.assignment.params[node.inputs[0]]
        codes = torch.round(x[0] / source.scale).long() + (source.zero_point + 128)
        return value + (table[codes] - value).detach()

    def _requantized(self, id: int, value: Tensor, node: Node) -> Tensor:
        source, quant = self.assignment.params[id], self.assignment.params[node.id]
        if source == quant:
            return value
        shift = right_shift(source.scale / quant.scale, self.requant)
        return quantize_affine(value, quant.scale, quant.zero_point, shift)

    def parameter_groups(self, rate: float = 0.01) -> Iterator[dict[str, Any]]:
        """Groups for an optimizer such as Adam, whose steps are about as large as the rate whatever the gradient.

        Weights move by `rate` of a quantization step (ternary ones three times as fast), scales by a fiftieth of that
        as a share of themselves, biases by a fiftieth of it in units of the layer's quantized output.
        """
        for id, layer in self.layers.items():
            own = rate * RATES[layer.bits]
            step = float(torch.exp(layer.log_scale.detach()).mean())
            yield {"params": [layer.weight], "lr": own * step}
            yield {"params": [layer.log_scale], "lr": SLOWER * own}
            yield {"params": [layer.bias], "lr": SLOWER * own * OUTPUT_UNIT * self.assignment.params[int(id)].scale}

    def settle(self, rate: float = 0.01) -> None:
        """After a step of the optimizer: draw weights a little to what they round to; `rate` as in the groups."""
        for layer in self.layers.values():
            layer.settle(rate)


SLOWER = 0.02
"""What scales and biases move by, beside weights: each of them moves all of a channel at once."""

OUTPUT_UNIT = 32.0
"""Codes of a layer's output that count as one unit of its bias: about a standard deviation."""


def judged(graph: Graph) -> tuple[int, ...]:
    """What a model is trained and judged by: its outputs, or what a final softmax reads, as that hides errors."""
    nodes = graph.output_nodes
    return tuple(node.inputs[0] if isinstance(node.op, Softmax) else node.id for node in nodes)


def _along_channels(anchor: Node, values: Tensor | float) -> Tensor | float:
    """Values [C] shaped so that they broadcast against a layer's result."""
    if not isinstance(values, Tensor):
        return values
    shape = [1] * len(anchor.type.shape)
    shape[channel_axis(anchor)] = -1
    return values.reshape(shape)


def _tensor(values: Array) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)
