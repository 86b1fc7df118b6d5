"""The driver of code generation: an int8 graph and a target to a plan."""

from __future__ import annotations

from collections.abc import Sequence

from rlx_edge.cgen.budget import within_budgets
from rlx_edge.cgen.costs import CALL_STACK_BYTES, costs_of
from rlx_edge.cgen.emit_stages import stack_of
from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.options import DEFAULT, Options
from rlx_edge.cgen.plan import Plan, Step, Tensor
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.ir import Graph
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.pipeline import arranged, lean


def make_plan(graph: Graph, target: TargetConfig, options: Options = DEFAULT) -> Plan:
    """Arrange for targets, freeze, leave out what no output needs, legalize, lower, and place every tensor.

    Raises UnsupportedError listing everything that the target cannot run, and EdgeError for a budget that is too small.
    """
    lowered = lean(freeze(arranged(graph)))  # A quantized ONNX model comes as NCHW.
    proofs = legalize(lowered, target)
    steps, layout = within_budgets(lowered, target, options)
    tensors = _tensors(lowered, steps, layout.offsets)
    return Plan(
        lowered,
        tensors,
        steps,
        layout.arena_bytes,
        stack_bytes(steps, target),
        proofs,
        layout.scratch_offsets,
        line_offsets={node: layout.offsets[node] for step in steps for node in step.lines},
        arena_bound=layout.bound,
        input_preserved=layout.input_preserved,
        target=target.name,
        options=options,
    )


def stack_bytes(steps: Sequence[Step], target: TargetConfig) -> int:
    """Bounds what a run takes of the stack: as rlx-edge build compiles, for a core whose costs are known; else
    under any optimization level."""
    costs = costs_of(target)
    if costs is None:
        return declared_stack(steps)
    return max(map(costs.step_stack, steps), default=costs.run_stack)


def declared_stack(steps: Sequence[Step]) -> int:
    """The same under any optimization level, on any core."""
    kernels = [max((call.kernel.stack_bytes for call in step.calls), default=0) + stack_of(step) for step in steps]
    return CALL_STACK_BYTES + max(kernels, default=0)


def _tensors(graph: Graph, steps: tuple[Step, ...], offsets: dict[int, int]) -> tuple[Tensor, ...]:
    order: list[tuple[int, int | None]] = [(node.id, None) for node in graph.inputs]
    order += [(step.node, index) for index, step in enumerate(steps)]
    return tuple(
        Tensor(i, graph.nodes[i].name, graph.nodes[i].type, graph.nodes[i].sources, offsets[i], step)
        for i, step in order
    )
