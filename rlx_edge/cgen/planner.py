"""The driver of code generation: an int8 graph and a target to a plan."""

from __future__ import annotations

from rlx_edge.cgen.choose import choose
from rlx_edge.cgen.legalize import legalize
from rlx_edge.cgen.memory import plan_memory
from rlx_edge.cgen.plan import Plan, Step, Tensor
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.ir import Graph
from rlx_edge.passes.freeze import freeze
from rlx_edge.passes.pipeline import clean
from rlx_edge.passes.to_nhwc import to_nhwc

CALL_STACK_BYTES = 256
"""What run, step and the call of a kernel take, beside the kernel itself."""


def make_plan(graph: Graph, target: TargetConfig) -> Plan:
    """Move to NHWC, freeze, legalize, lower, and place every tensor.

    Raises UnsupportedError listing everything that the target cannot run.
    """
    lowered = freeze(clean(to_nhwc(graph)))  # A quantized ONNX model comes as NCHW.
    proofs = legalize(lowered, target)
    steps = choose(lowered, target)
    layout = plan_memory(lowered, steps)
    tensors = _tensors(lowered, steps, layout.offsets)
    kernel_stack = max((call.kernel.stack_bytes for step in steps for call in step.calls), default=0)
    return Plan(
        lowered, tensors, steps, layout.arena_bytes, CALL_STACK_BYTES + kernel_stack, proofs, layout.scratch_offsets
    )


def _tensors(graph: Graph, steps: tuple[Step, ...], offsets: dict[int, int]) -> tuple[Tensor, ...]:
    order: list[tuple[int, int | None]] = [(node.id, None) for node in graph.inputs]
    order += [(step.node, index) for index, step in enumerate(steps)]
    return tuple(
        Tensor(i, graph.nodes[i].name, graph.nodes[i].type, graph.nodes[i].sources, offsets[i], step)
        for i, step in order
    )
