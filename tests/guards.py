"""Models whose tensors lie apart, each between guard bytes, as C for the host and for firmware.

Firmware gets every model twice: as it is, and as `whole_NAME`, whose steps are those of NAME, but whose one input and
one output are the arena from its first byte to its last. So the link fills and reads guard bytes as it does those of
any tensor, and neither the link nor the generated code has anything in it for this.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from rlx_edge.cgen.bundle import kernels_id
from rlx_edge.cgen.emit import emit
from rlx_edge.cgen.lower import Candidate, candidates
from rlx_edge.cgen.memory import scratch_bytes
from rlx_edge.cgen.plan import Plan, Step
from rlx_edge.cgen.target import TARGETS, get_target
from rlx_edge.ir import Array
from rlx_edge.resources import firmware_dir

WHOLE_HEADER = """
#include "../%(name)s/%(name)s.h"
#define WHOLE_%(upper)s_ARENA_BYTES %(upper)s_ARENA_BYTES
#define whole_%(name)s_run %(name)s_run
typedef %(name)s_arena_t whole_%(name)s_arena_t;
extern const rlx_model_t whole_%(name)s_model;
"""
WHOLE_SOURCE = """
#include "whole_%(name)s.h"
enum { BYTES = %(upper)s_ARENA_BYTES, STEPS = %(upper)s_STEPS };
static void step(uint8_t *arena, uint32_t index)
{
    %(name)s_step((%(name)s_arena_t *)(void *)arena, index);
}
static const rlx_tensor_t tensors[2] = {
    {"before", 0, BYTES, RLX_NO_STEP, 0.0f, 0, RLX_S8, 2, {BYTES / 16, 16}},
    {"after", 0, BYTES, STEPS - 1, 0.0f, 0, RLX_S8, 2, {BYTES / 16, 16}},
};
static const uint16_t outputs[1] = {1};
const rlx_model_t whole_%(name)s_model = {
    .name = "whole_%(name)s", .ident = "whole_%(name)s", .arena_bytes = BYTES, .steps = STEPS, .tensor_count = 2,
    .input_count = 1, .output_count = 1, .outputs = outputs, .tensors = tensors, .layers = %(name)s_layers,
    .step = step, .weights_ok = %(name)s_weights_ok,
};
"""

Span = tuple[int, int]
"""Bytes [first, end) of the arena."""


def owned(plan: Plan) -> list[Span]:
    """The memory of tensors, line buffers and scratch memory, from the arena's first byte on. No two overlap."""
    sizes = [(tensor.offset, tensor.type.bytes) for tensor in plan.tensors]
    lines = {node: line.bytes for step in plan.steps for node, line in step.lines.items()}
    sizes += [(plan.line_offsets[node], size) for node, size in lines.items()]
    sizes += [(offset, scratch_bytes(plan.steps[index])) for index, offset in plan.scratch_offsets.items()]
    spans = sorted({(offset, offset + size) for offset, size in sizes})  # a reshape is where its operand is
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), "not a guarded plan"
    return spans


def guards(plan: Plan) -> list[Span]:
    """The memory that nobody owns: before, between and after that."""
    spans = owned(plan)
    ends, firsts = [0, *(end for _, end in spans)], [*(first for first, _ in spans), plan.arena_bytes]
    return list(zip(ends, firsts, strict=True))


def in_all_ways(plan: Plan) -> list[Plan]:
    """The same layers computed in other ways: every variant of each that the core has is in one of these plans.

    Their scratch memory has no places yet: `guarded` gives them."""
    isas = get_target(plan.target).isas
    ways = [candidates(plan.graph, plan.graph.nodes[step.node], isas)[0] for step in plan.steps]
    pairs = list(zip(plan.steps, ways, strict=True))
    return [
        replace(plan, steps=tuple(_chosen(step, way[turn % len(way)]) for step, way in pairs))
        for turn in range(max(map(len, ways)))
    ]


def _chosen(step: Step, way: Candidate) -> Step:
    return replace(step, calls=way.calls, variant=way.variant)


def filled(plan: Plan, inputs: Mapping[str, Array], fill: int) -> bytes:
    """The arena before a run: the inputs, and the byte `fill` everywhere else."""
    arena = bytearray([fill]) * plan.arena_bytes
    for tensor in plan.tensors[: len(plan.graph.inputs)]:
        arena[tensor.offset : tensor.offset + tensor.type.bytes] = _bytes(inputs[tensor.name])
    return bytes(arena)


def changed(plan: Plan, arena: bytes, fill: int) -> list[str]:
    """The guards that a run has written to, by their place."""
    return [f"[{first}, {end})" for first, end in guards(plan) if arena[first:end] != bytes([fill]) * (end - first)]


def differing(plan: Plan, arena: bytes, values: Mapping[str, Array]) -> list[str]:
    """The tensors that are not as in `values` after a run."""
    return [t.name for t in plan.tensors if not arena[t.offset :].startswith(_bytes(values[t.name]))]


def _bytes(values: Array) -> bytes:
    return np.ascontiguousarray(values).tobytes()


def write_bundle(folder: Path, plans: Mapping[str, Plan]) -> Path:
    """The plans as models of a bundle, as they are and as `whole_NAME`, with the kernels that they call."""
    needed = {"rlx_crc32.c", *(kernel.source for plan in plans.values() for kernel in plan.kernels)}
    (folder / "rlx").mkdir(parents=True)
    for file in (firmware_dir() / "kernels").iterdir():
        if file.suffix == ".h" or file.name in needed:
            shutil.copy(file, folder / "rlx")
    (folder / "rlx" / "rlx_bundle.h").write_text(f"#define RLX_BUNDLE_KERNELS {kernels_id()}\n")
    for name, plan in plans.items():
        words = {"name": name, "upper": name.upper()}
        whole = {f"whole_{name}.h": WHOLE_HEADER % words, f"whole_{name}.c": WHOLE_SOURCE % words}
        _write(folder / name, emit(plan, name, TARGETS[plan.target], kernels_id()).files)
        _write(folder / f"whole_{name}", whole)
    return folder


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
