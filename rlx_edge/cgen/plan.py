"""What generated code does, as data: tensors in an arena, and steps that call kernels on views of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.ir import Array, Graph, TensorType


@dataclass(frozen=True, eq=False)
class Constant:
    """An array in flash: int8 or int32, with the name that it has within its step."""

    name: str
    values: Array


@dataclass(frozen=True, eq=False)
class View:
    """Rows of a tensor (by node id) or of a constant: the C code's rlx_view_t. `offset` is in bytes."""

    base: int | Constant
    pitch: int
    offset: int = 0
    ring: int = 0


Work = Callable[[int], Mapping[str, int]]
"""Of a call for so many output rows: how often the pieces of its kernel's code run, by name."""


def no_work(rows: int) -> Mapping[str, int]:
    """Of kernels that are counted elsewhere (cgen/work.py)."""
    return {}


def proportional(counts: Mapping[str, int], of: int) -> Work:
    """For kernels that take row after row: any row's share of the counts for `of` rows."""
    return lambda rows: {name: count * rows // of for name, count in counts.items()}


@dataclass(frozen=True, eq=False)
class Call:
    """One kernel call: rows [first_row, rows) of its output.

    `scratch`: bytes of scratch memory that it needs. `by_rows`: the call for when rows are made one at a time, where
    another is better then or needs less scratch memory.
    `work`: counts of what the kernel's loops do for so many rows, from which the cost model predicts instructions.
    `proof`: what was proved from the weights so that this kernel gives the right bits.
    """

    kernel: Kernel
    params: Mapping[str, int]
    inputs: tuple[View, ...]
    output: View
    rows: int
    constants: Mapping[str, Constant] = field(default_factory=dict)
    scratch: int = 0
    work: Work = no_work
    proof: str = ""
    first_row: int = 0
    by_rows: Call | None = None


def constants_of(calls: Iterable[Call]) -> list[Constant]:
    """The arrays in flash that calls read, each once."""
    found: dict[int, Constant] = {}
    for call in calls:
        views = [view.base for view in call.inputs if isinstance(view.base, Constant)]
        found |= {id(constant): constant for constant in (*views, *call.constants.values())}
    return list(found.values())


@dataclass(frozen=True)
class Line:
    """The memory of a tensor of which only some rows exist at a time: a ring of `rows` rows of `pitch` bytes, of the
    tensor's `of` rows. The tensor of a running sum, which no node has, is numbered from len(graph.nodes) on."""

    rows: int
    pitch: int
    of: int

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch


@dataclass(frozen=True, eq=False)
class Step:
    """All calls that compute one tensor. A step without calls only renames a tensor (a reshape).

    `variant` names what was chosen among the ways to compute it, `others` the ways that would give the same bits;
    `reasons` says why others do not apply, a line each.
    A stage computes several layers row by row, up to the tensor of `node`; the tensors within exist only as line
    buffers: `lines`, by node.
    """

    node: int
    calls: tuple[Call, ...]
    variant: str = "portable"
    reasons: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    lines: Mapping[int, Line] = field(default_factory=dict)


@dataclass(frozen=True)
class Tensor:
    """A tensor in the arena. `step` completes it; None for a model input."""

    node: int
    name: str
    type: TensorType
    sources: tuple[str, ...]
    offset: int
    step: int | None


@dataclass(frozen=True, eq=False)
class Plan:
    """A model ready to be written as C. `tensors` has the inputs first; offsets are bytes from the arena's start.

    `scratch_offsets`: where the scratch memory of a step lies, for the steps that have some. `line_offsets`: where the
    line buffers of stages lie, by node. `arena_bound`: no arena for the same steps is smaller, by sums of live bytes.
    `input_preserved`: a run leaves its inputs as they are. `target` and `options`: what it was made for.
    """

    graph: Graph
    tensors: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    stack_bytes: int
    proofs: tuple[str, ...]
    scratch_offsets: Mapping[int, int] = field(default_factory=dict)
    line_offsets: Mapping[int, int] = field(default_factory=dict)
    arena_bound: int = 0
    input_preserved: bool = False
    target: str = "portable"
    options: Options = DEFAULT

    def tensor_of(self, node: int) -> int:
        """The index in `tensors` of a node's tensor."""
        return next(i for i, tensor in enumerate(self.tensors) if tensor.node == node)

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that tell this layout of memory and choice of kernels from any other."""
        tensors = [(tensor.name, tensor.offset, tensor.type.bytes, tensor.step) for tensor in self.tensors]
        calls = [[(call.kernel.name, call.rows, call.scratch) for call in step.calls] for step in self.steps]
        facts = (
            self.arena_bytes,
            tensors,
            calls,
            sorted(self.scratch_offsets.items()),
            sorted(self.line_offsets.items()),
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    @property
    def offsets(self) -> Mapping[int, int]:
        """Where tensors and line buffers lie, by node."""
        return {tensor.node: tensor.offset for tensor in self.tensors} | dict(self.line_offsets)

    @property
    def all_tensors(self) -> tuple[Tensor, ...]:
        """The tensors, and behind them those within stages, which never exist as a whole."""
        nodes = self.graph.nodes
        within = [
            Tensor(i, nodes[i].name, nodes[i].type, nodes[i].sources, self.line_offsets[i], index)
            for index, step in enumerate(self.steps)
            for i in step.lines
            if i < len(nodes)
        ]
        return (*self.tensors, *within)

    @property
    def outputs(self) -> tuple[int, ...]:
        return tuple(self.tensor_of(i) for i in self.graph.outputs)

    @property
    def constant_bytes(self) -> int:
        """Bytes of weights, biases and scale tables in flash."""
        calls = [call for step in self.steps for call in step.calls]
        return sum(constant.values.nbytes for constant in constants_of(calls))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels that the plan calls, each once, by name."""
        used = {call.kernel.name: call.kernel for step in self.steps for call in step.calls}
        return tuple(used[name] for name in sorted(used))
