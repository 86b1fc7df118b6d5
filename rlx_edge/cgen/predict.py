"""What a plan will take of its core, before anything is compiled: instructions, flash, RAM and stack."""

from __future__ import annotations

from dataclasses import dataclass

from rlx_edge.cgen.costs import CoreCosts, costs_of
from rlx_edge.cgen.memory import occupied, placed
from rlx_edge.cgen.plan import Plan, Step, constants_of
from rlx_edge.cgen.target import get_target


@dataclass(frozen=True)
class LayerPrediction:
    """A step. flash_bytes: its constants and the code that calls its kernels; ram_bytes: of the arena, that hold
    something while it runs; reasons: why other variants do not apply; others: variants that do, and are not taken for
    what they cost; rough: kernels whose costs are only guessed.
    """

    name: str
    op: str
    variant: str
    instructions: int
    flash_bytes: int
    ram_bytes: int
    stack_bytes: int
    reasons: tuple[str, ...]
    others: tuple[str, ...]
    rough: tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """A model on a core. flash_bytes = constant_bytes + kernel_bytes + code_bytes (the model's own); start-up and link
    are not in it. ram_bytes: the arena."""

    core: str
    instructions: int
    flash_bytes: int
    constant_bytes: int
    kernel_bytes: int
    code_bytes: int
    ram_bytes: int
    stack_bytes: int
    layers: tuple[LayerPrediction, ...]

    @property
    def rough(self) -> tuple[str, ...]:
        """Kernels whose costs were not fitted, which makes the prediction a guess."""
        return tuple(sorted({name for layer in self.layers for name in layer.rough}))


def predict(plan: Plan) -> Prediction | None:
    """The prediction for the core that a plan was made for; None where no costs are known (target `portable`)."""
    costs = costs_of(get_target(plan.target))
    if costs is None:
        return None
    held = occupied(placed(plan.graph, plan.steps, plan.offsets, plan.scratch_offsets), len(plan.steps))
    layers = tuple(_layer(plan, step, costs, ram) for step, ram in zip(plan.steps, held, strict=True))
    kernels = costs.kernel_bytes(kernel.name for kernel in plan.kernels)
    code = costs.code_bytes(plan.steps)
    return Prediction(
        core=costs.core,
        instructions=sum(layer.instructions for layer in layers),
        flash_bytes=plan.constant_bytes + kernels + code,
        constant_bytes=plan.constant_bytes,
        kernel_bytes=kernels,
        code_bytes=code,
        ram_bytes=plan.arena_bytes,
        stack_bytes=plan.stack_bytes,
        layers=layers,
    )


def _layer(plan: Plan, step: Step, costs: CoreCosts, ram_bytes: int) -> LayerPrediction:
    node = plan.graph.nodes[step.node]
    code = costs.code_bytes([step]) - costs.model_bytes
    return LayerPrediction(
        name=node.name,
        op=node.op.kind_name,
        variant=step.variant if step.calls else "",
        instructions=costs.step_cost(step),
        flash_bytes=code + sum(constant.values.nbytes for constant in constants_of(step.calls)),
        ram_bytes=ram_bytes,
        stack_bytes=costs.step_stack(step),
        reasons=step.reasons,
        others=step.others,
        rough=tuple(sorted({call.kernel.name for call in step.calls if not costs.is_fitted(call)})),
    )
