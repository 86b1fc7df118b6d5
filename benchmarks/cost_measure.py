"""Kernel calls of many shapes, measured one by one on an emulated board: each is a step of a hand-made plan."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from cost_cases import PACKED, families

from rlx_edge.cgen.bundle import kernels_id
from rlx_edge.cgen.emit import emit
from rlx_edge.cgen.lower import Candidate, candidates
from rlx_edge.cgen.plan import Call, Plan, Step, Tensor, View
from rlx_edge.cgen.stream import parts_of
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.device.boards import Board
from rlx_edge.device.build import Firmware, build_firmware
from rlx_edge.device.emulator import Emulator
from rlx_edge.device.link import Link, StepResult
from rlx_edge.device.profile import ticks_to_instructions
from rlx_edge.ir import Array, Graph, Node
from rlx_edge.ir.ops import Leaf, Narrow, Reshape
from rlx_edge.resources import firmware_dir

ALIGNMENT = 16
STEP_BYTES = 256
"""About what a step takes of flash beside its constants."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A call and its cost: instructions of the step that does nothing but this call; stack bytes of the step."""

    call: Call
    instructions: int
    stack_bytes: int


def measured_plans(
    name: str, graph: Graph, target: TargetConfig, kernels: Sequence[str] = (), most_bytes: int = 1 << 30
) -> dict[str, Plan]:
    """Plans whose first step is empty and whose other steps are one call each: all calls of all ways to compute the
    layers of `graph` (of these kernels, or of all, and as _is_of says), in plans of at most so many bytes of flash, by
    name. Every output lies in the same place, and scratch memory after it. A plan has one input and one tensor beside
    it, so that little is asked over the link.
    """
    parts: list[list[Step]] = [[]]
    size = 0
    for node in graph.nodes:
        if not isinstance(node.op, Leaf | Narrow | Reshape):
            found, _ = candidates(graph, node, target.isas)
            calls = [call for candidate in found if _is_of(name, candidate) for call in candidate.calls]
            for call in (_rooted(graph, call) for call in (*calls, *_row_by_row(graph, node, calls))):
                if not kernels or call.kernel.name in kernels:
                    more = STEP_BYTES + sum(constant.values.nbytes for constant in call.constants.values())
                    if parts[-1] and size + more > most_bytes:
                        parts.append([])
                        size = 0
                    parts[-1].append(Step(node.id, (call,)))
                    size += more
    return {f"{name}_{i}": _plan(graph, steps) for i, steps in enumerate(parts) if steps}


def _is_of(family: str, candidate: Candidate) -> bool:
    """A family of packed weights is for the kernels that read those: others take them as int8."""
    width = family.rpartition("_")[2]
    return width not in PACKED or candidate.variant.endswith(f"_{width}")


def _row_by_row(graph: Graph, node: Node, calls: Sequence[Call]) -> list[Call]:
    """The calls that take a mean over a whole image in a stage; the sums lie where the output lies."""
    found = []
    for call in calls:
        parts = parts_of(graph, node.id, call)
        if len(parts) == 2:
            (adding, _), (dividing, _) = parts
            sums = replace(adding.output, base=node.id)
            found.append(replace(adding, inputs=(adding.inputs[0], sums), output=sums))
            found.append(replace(dividing, inputs=(replace(sums, base=graph.inputs[0].id),)))
    return found


def _plan(graph: Graph, made: Sequence[Step]) -> Plan:
    (x,) = graph.inputs
    last = made[-1].node
    made = [replace(step, calls=tuple(_onto(last, step.node, call) for call in step.calls)) for step in made]
    steps = (Step(x.id, ()), *made)
    out = _aligned(x.type.bytes)
    largest = max(4 * graph.nodes[step.node].type.bytes for step in steps)  # int32 sums instead of int8 means
    scratch = out + _aligned(largest)
    output = Tensor(last, "out", graph.nodes[last].type, (), out, len(steps) - 1)
    arena = scratch + _aligned(max((call.scratch for step in steps for call in step.calls), default=0))
    return Plan(
        replace(graph, outputs=(last,)),
        (Tensor(x.id, x.name, x.type, (), 0, None), output),
        steps,
        arena,
        1024,
        (),
        dict.fromkeys(range(len(steps)), scratch),
    )


def _onto(last: int, node: int, call: Call) -> Call:
    """The call with its output, and what it reads of it, in the tensor `last`."""
    inputs = tuple(replace(view, base=last) if view.base == node else view for view in call.inputs)
    return replace(call, inputs=inputs, output=replace(call.output, base=last))


def _rooted(graph: Graph, call: Call) -> Call:
    """The call with views of the model's input where it has views of tensors that are cut out of it."""

    def rooted(view: View) -> View:
        if not isinstance(view.base, int):
            return view
        node, offset = graph.nodes[view.base], view.offset
        while isinstance(node.op, Narrow | Reshape):
            offset += node.op.start * node.type.dtype.bits // 8 if isinstance(node.op, Narrow) else 0
            node = graph.nodes[node.inputs[0]]
        return replace(view, base=node.id, offset=offset)

    return replace(call, inputs=tuple(map(rooted, call.inputs)))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def build_plans(plans: Mapping[str, Plan], target: TargetConfig, board: Board, folder: Path) -> Firmware:
    """Firmware of hand-made plans, by model name."""
    bundle = folder / "bundle"
    shutil.copytree(firmware_dir() / "kernels", bundle / "rlx")
    (bundle / "rlx" / "rlx_bundle.h").write_text(f"#define RLX_BUNDLE_KERNELS {kernels_id()}\n")
    for name, plan in plans.items():
        (bundle / name).mkdir()
        for file, content in emit(plan, name, target, kernels_id()).files.items():
            (bundle / name / file).write_text(content)
    return build_firmware(bundle, list(plans), board, folder)


def measure(
    board: Board, target: TargetConfig, kernels: Sequence[str] = ()
) -> tuple[list[Measured], int, dict[str, Plan]]:
    """All calls of all families (of these kernels), measured; the instructions of an empty step; the plans."""
    room = board.placement.code.bytes // 2
    plans: dict[str, Plan] = {}
    for name, make in families().items():
        print(f"\r  {name} ", end="", flush=True)
        plans |= measured_plans(name, make(), target, kernels, room)
    found: list[Measured] = []
    empty = 0
    for batch in _batches(plans, room):
        more, empty = _measure_plans(board, target, batch)
        found += more
    print("\r", end="")
    return found, empty, plans


def _batches(plans: Mapping[str, Plan], room: int) -> Iterator[dict[str, Plan]]:
    """Plans that go into one image."""
    batch: dict[str, Plan] = {}
    size = 0
    for name, plan in plans.items():
        more = plan.constant_bytes + STEP_BYTES * len(plan.steps)
        if batch and size + more > room:
            yield batch
            batch, size = {}, 0
        batch[name] = plan
        size += more
    yield batch


def _measure_plans(board: Board, target: TargetConfig, plans: Mapping[str, Plan]) -> tuple[list[Measured], int]:
    found: list[Measured] = []
    empty = 0
    with tempfile.TemporaryDirectory(prefix="rlx-edge-costs-") as folder:
        firmware = build_plans(plans, target, board, Path(folder))
        with (
            Emulator(board, firmware.elf, icount=True) as emulator,
            Link.open(emulator.port, board.baud, elf=firmware.elf) as link,
        ):
            hz = link.hello().count_hz
            for name, plan in plans.items():
                print(f"\r  {name}: {len(plan.steps)} steps ", end="", flush=True)
                costs = _run_steps(link, name, len(plan.steps))
                counts = [ticks_to_instructions(cost.ticks, hz) for cost in costs]
                empty = counts[0]
                for step, cost, count in zip(plan.steps[1:], costs[1:], counts[1:], strict=True):
                    found.append(Measured(step.calls[0], count, cost.stack_bytes))
    return found, empty


def _run_steps(link: Link, name: str, steps: int) -> list[StepResult]:
    model = link.model(name)
    link.clear(model)
    link.write_inputs(model, {x.name: _random(x.shape, x.dtype) for x in model.inputs})
    return [link.step(model, step, measure_stack=True) for step in range(steps)]


def _random(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    rng = np.random.default_rng(7)
    values = rng.integers(-128, 128, shape)
    return np.asarray(values.astype(np.int8) if dtype == np.int8 else (values / 50).astype(np.float32))
