"""A model as a graph: nodes in topological order, each with one output tensor."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from rlx_edge.ir.channels import Channels
from rlx_edge.ir.dtype import Array, DType
from rlx_edge.ir.ops import Constant, Declared, Input, Op, Param, ShapeError
from rlx_edge.ir.tensor import QuantParams, TensorType


@dataclass(frozen=True)
class Node:
    """One op applied to earlier nodes. `sources` names the tensors of the source model that it computes.

    `channels` says which of their channels it still has, where a pass removed some; None: all.
    """

    id: int
    op: Op
    inputs: tuple[int, ...]
    type: TensorType
    name: str
    sources: tuple[str, ...] = ()
    channels: Channels | None = None

    def __str__(self) -> str:
        return f"node {self.id} {self.op.kind_name} {self.name!r}"


@dataclass(frozen=True, eq=False)
class Graph:
    """An immutable model. Node ids are indices into `nodes`; operands come before their users.

    `params` holds the values of Param nodes by name. `metadata` is free text (preprocessing, provenance).
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    params: Mapping[str, Array] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The Input nodes, in their order."""
        return tuple(node for node in self.nodes if isinstance(node.op, Input))

    @cached_property
    def output_nodes(self) -> tuple[Node, ...]:
        return tuple(self.nodes[i] for i in self.outputs)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node, the ids of the nodes that read it (a graph output is not a user)."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for operand in dict.fromkeys(node.inputs):
                found[operand].append(node.id)
        return tuple(map(tuple, found))

    def operands(self, node: Node) -> tuple[Node, ...]:
        return tuple(self.nodes[i] for i in node.inputs)

    def operand_types(self, node: Node) -> tuple[TensorType, ...]:
        return tuple(self.nodes[i].type for i in node.inputs)

    def constant(self, node: Node) -> Array | None:
        """The values of a Param or Constant node, or None for a node that is computed."""
        if isinstance(node.op, Param):
            return self.params[node.op.name]
        if isinstance(node.op, Constant):
            return np.frombuffer(node.op.data, node.type.dtype.numpy).reshape(node.type.shape)
        return None

    def macs(self, node: Node) -> int:
        return node.op.macs(self.operand_types(node), node.type)

    @property
    def total_macs(self) -> int:
        """Multiply-accumulates of all nodes."""
        return sum(map(self.macs, self.nodes))

    def with_metadata(self, **entries: str) -> Graph:
        return replace(self, metadata={**self.metadata, **entries})


BRIEF_WIDTH = 36
_FOLDED = re.compile(r"(?<=.)(/BiasAdd)?/ReadVariableOp/resource\d*$")
"""What TFLite's converter appends to the name of a layer whose bias it folded."""


def brief(name: str) -> str:
    """A node's name in tables, messages and figures: of several joined by semicolons (TFLite's fused tensors) the last,
    without what the converter appends; of a long one its end. Patterns of recipes match it as they match the name."""
    last = _FOLDED.sub("", name.rsplit(";", 1)[-1] or name)
    return last if len(last) <= BRIEF_WIDTH else f"…{last[1 - BRIEF_WIDTH :]}"


class GraphBuilder:
    """Builds a graph node by node; the only place where nodes are made.

    Names are made unique by a suffix. Shape and dtype are inferred; integer outputs that stand for real values need
    `quant`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.params: dict[str, Array] = {}
        self.metadata: dict[str, str] = {}
        self._nodes: list[Node] = []
        self._names: set[str] = set()

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    def __len__(self) -> int:
        return len(self._nodes)

    def input(self, name: str, type: TensorType, sources: Sequence[str] = ()) -> int:
        unique = self._unique(name)
        return self._append(Input(unique), (), type, unique, sources)

    def param(
        self,
        name: str,
        values: Array,
        quant: QuantParams | None = None,
        sources: Sequence[str] = (),
        dtype: DType | None = None,
    ) -> int:
        """A weight or bias. `values` keeps its numpy dtype, which must be one that the IR has; `dtype` is I4 or I2 for
        int8 values that these hold."""
        unique = self._unique(name)
        self.params[unique] = values
        type = TensorType(values.shape, dtype or DType.of(values), quant)
        return self._append(Param(unique), (), type, unique, sources)

    def constant(self, name: str, values: Array, quant: QuantParams | None = None) -> int:
        data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
        return self._append(Constant(data), (), TensorType(values.shape, DType.of(values), quant), name, ())

    def add(
        self,
        op: Op,
        inputs: Sequence[int],
        name: str,
        quant: QuantParams | None = None,
        sources: Sequence[str] = (),
        channels: Channels | None = None,
        type: TensorType | None = None,
    ) -> int:
        """Append an op. `type`: that of the output, for a kind that needs it declared. Raises ShapeError (a ValueError)
        when the operands do not fit the op, or no type is declared where one is needed."""
        operands = [self._nodes[i].type for i in inputs]
        if not op.arity.accepts(len(operands)):
            raise ShapeError(f"{len(operands)} operands where {op.arity} are needed")
        if isinstance(op, Declared) and type is not None:
            op.check(operands, type)
        else:
            type = TensorType(*op.infer(operands), quant)
        return self._append(op, tuple(inputs), type, name, sources, channels)

    def copy(self, node: Node, inputs: Sequence[int], graph: Graph) -> int:
        """Append a node of another graph, with operands of this one; a Param brings its values."""
        if isinstance(node.op, Param):
            values = graph.params[node.op.name]
            return self.param(node.op.name, values, node.type.quant, node.sources, node.type.dtype)
        return self._append(node.op, tuple(inputs), node.type, node.name, node.sources, node.channels)

    def keep_channels(self, node_id: int, channels: Channels | None) -> None:
        """Give a node the channel map of the node that it stands for."""
        self._nodes[node_id] = replace(self._nodes[node_id], channels=channels)

    def rename(self, node_id: int, name: str, sources: Sequence[str] = ()) -> None:
        """Give a computed node the name, and the sources, of the node that it stands for."""
        node = self._nodes[node_id]
        if not isinstance(node.op, Declared):
            self._nodes[node_id] = replace(node, name=self._unique(name), sources=tuple(sources))
            self._names.add(self._nodes[node_id].name)

    def _append(
        self,
        op: Op,
        inputs: tuple[int, ...],
        type: TensorType,
        name: str,
        sources: Sequence[str],
        channels: Channels | None = None,
    ) -> int:
        node_id = len(self._nodes)
        self._nodes.append(Node(node_id, op, inputs, type, self._unique(name), tuple(sources), channels))
        self._names.add(self._nodes[-1].name)
        return node_id

    def _unique(self, name: str) -> str:
        if name not in self._names:
            return name
        count = 2
        while f"{name}_{count}" in self._names:
            count += 1
        return f"{name}_{count}"

    def build(self, outputs: Sequence[int]) -> Graph:
        """The finished graph, verified. Raises ModelError with every problem found."""
        from rlx_edge.ir.verify import verify

        graph = Graph(self.name, tuple(self._nodes), tuple(outputs), dict(self.params), dict(self.metadata))
        verify(graph)
        return graph
