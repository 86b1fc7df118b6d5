"""What kernels cost on each core: instructions, code bytes, stack; fitted by `make fit-costs`, kept in costs.json.

Instructions of a call are linear in the counts of what its loops do (cgen/work.py): base + sum of per[name] * count.
They are measured on emulated boards and repeat exactly; they are not cycles. Code and stack bytes are those of the
compiler and the flags that the file names, which are those of `rlx-edge build`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from rlx_edge.cgen.emit_stages import layers_of, stack_of
from rlx_edge.cgen.plan import Call, Step, constants_of
from rlx_edge.cgen.target import TargetConfig
from rlx_edge.cgen.variants.table import ALL_KERNELS
from rlx_edge.cgen.work import work_of

SCHEMA = "rlx-edge costs 1"
FILE = "costs.json"

SAME_CORE = {"cortex-m0plus": "cortex-m0"}
"""Cores that run the same instructions as another, which was measured."""

CALL_STACK_BYTES = 256
"""What run, step and the call of a kernel take of the stack, beside the kernel, under any optimization level."""

TYPICAL = "cortex-m4"
"""By whose costs code for any core is chosen."""

ROUGH_CODE_BYTES = 1024
ROUGH_BASE = 200
ROUGH_PER_BYTE = 40
"""What is taken of a kernel that was not fitted: its code, instructions of a call and of each byte of its output."""


@dataclass(frozen=True)
class KernelCost:
    """Instructions of a call: base + per[count] * count. `code_bytes`: flash of the kernel and what it alone pulls in;
    `library`: functions of the compiler's library that it calls. `error`: the fit's largest relative error."""

    base: float
    per: Mapping[str, float]
    code_bytes: int
    library: tuple[str, ...]
    stack_bytes: int
    error: float

    def covers(self, work: Mapping[str, int]) -> bool:
        """Whether all that is counted was known when the kernel was fitted: else its code has changed since."""
        return work.keys() <= self.per.keys()

    def instructions(self, work: Mapping[str, int]) -> float:
        return self.base + sum(self.per.get(name, 0.0) * count for name, count in work.items())


@dataclass(frozen=True)
class CoreCosts:
    """The costs of a core.

    step_instructions: of a step without calls. library: bytes of flash by function. Flash of a model's own code:
    model_bytes + step_bytes * steps + call_bytes * calls + view_bytes * views of the calls, and its parameter structs.
    run_stack: stack of run, step and what they push for a call. start_up_*, link_*: what the firmware adds, with a link
    payload of 0 bytes; the link keeps two payloads in RAM.
    """

    core: str
    kernels: Mapping[str, KernelCost]
    library: Mapping[str, int]
    step_instructions: int
    model_bytes: int
    step_bytes: int
    call_bytes: int
    view_bytes: int
    run_stack: int
    start_up_flash: int
    start_up_ram: int
    link_flash: int
    link_ram: int

    def kernel(self, name: str) -> KernelCost:
        """What a kernel costs. Raises KeyError for one that was not fitted."""
        return self.kernels[name]

    def is_fitted(self, call: Call) -> bool:
        """Whether a call's instructions are known, not guessed."""
        work, kernel = work_of(call), self.kernels.get(call.kernel.name)
        return work is not None and kernel is not None and kernel.covers(work)

    def call_instructions(self, call: Call) -> float:
        """Predicted instructions of a call; a rough guess for a kernel that was not fitted."""
        if not self.is_fitted(call):
            return ROUGH_BASE + ROUGH_PER_BYTE * (call.rows - call.first_row) * call.output.pitch
        return self.kernels[call.kernel.name].instructions(work_of(call) or {})

    def step_cost(self, step: Step) -> int:
        """Predicted instructions of a step."""
        return round(self.step_instructions + sum(map(self.call_instructions, step.calls)))

    def kernel_bytes(self, names: Iterable[str]) -> int:
        """Flash of these kernels together; what several call is there once."""
        used = set(names)
        library = self.library_of(used)
        own = sum(self.kernels[n].code_bytes if n in self.kernels else ROUGH_CODE_BYTES for n in sorted(used))
        return own + sum(self.library[function] for function in library)

    def library_of(self, names: Iterable[str]) -> frozenset[str]:
        """The functions of the compiler's library that these kernels call."""
        return frozenset(function for name in names if name in self.kernels for function in self.kernels[name].library)

    def flash_bytes(self, steps: Sequence[Step]) -> int:
        """Flash that a model's steps bring: constants, kernels and the model's own code."""
        calls = [call for step in steps for call in step.calls]
        code = self.kernel_bytes(call.kernel.name for call in calls) + self.code_bytes(steps)
        return code + sum(constant.values.nbytes for constant in constants_of(calls))

    def stack_bytes(self, call: Call) -> int:
        """Stack of a call, without run and step; a kernel that was not fitted takes what it declares."""
        found = self.kernels.get(call.kernel.name)
        return call.kernel.stack_bytes if found is None else found.stack_bytes

    def step_stack(self, step: Step) -> int:
        """Stack of a run while it is in a step."""
        return self.run_stack + stack_of(step) + max(map(self.stack_bytes, step.calls), default=0)

    def code_bytes(self, steps: Iterable[Step]) -> int:
        """Flash of the model's own code: run, steps, and the parameters of their calls."""
        total = self.model_bytes
        for step in steps:
            calls = layers_of(step) if step.lines else step.calls  # a stage's code is there once for all of its rows
            total += self.step_bytes + self.call_bytes * len(calls) + (len(step.calls) if step.lines else 0)
            total += self.view_bytes * sum(len(call.inputs) + 1 for call in calls)
            structs = {(id(call.params), id(call.constants)): call.kernel for call in calls}
            total += sum(4 * (len(kernel.pointers) + len(kernel.fields)) for kernel in structs.values())
        return total


def costs_of(target: TargetConfig) -> CoreCosts | None:
    """The costs of a target's core; None where none were measured (target `portable`)."""
    return _all_costs().get(SAME_CORE.get(target.name, target.name))


def typical_costs() -> CoreCosts | None:
    """What is taken to choose code for a core that is not known: instructions and code of a typical one, and stacks
    that hold for all. None where nothing was fitted."""
    costs = _all_costs().get(TYPICAL)
    if costs is None:
        return None
    declared = {kernel.name: kernel.stack_bytes for kernel in ALL_KERNELS}
    kernels = {
        name: replace(kernel, stack_bytes=declared[name]) for name, kernel in costs.kernels.items() if name in declared
    }
    return replace(costs, kernels=kernels, run_stack=CALL_STACK_BYTES)


def build_flags() -> str:
    """The compiler's optimization flags that sizes and instructions hold for."""
    return str(_table().get("flags", ""))


@cache
def _table() -> Mapping[str, Any]:
    table = json.loads(files("rlx_edge.cgen").joinpath(FILE).read_text(encoding="utf-8"))
    if table["schema"] != SCHEMA:
        raise ValueError(f"{FILE}: schema {table['schema']!r} is not {SCHEMA!r}")
    return dict(table)


@cache
def _all_costs() -> Mapping[str, CoreCosts]:
    return {core: _core(core, facts) for core, facts in _table()["cores"].items()}


def _core(core: str, facts: Mapping[str, Any]) -> CoreCosts:
    kernels = {name: _kernel(kernel) for name, kernel in facts["kernels"].items()}
    return CoreCosts(core, kernels, facts["library"], **facts["model"], **facts["firmware"])


def _kernel(facts: Mapping[str, Any]) -> KernelCost:
    return KernelCost(**{**facts, "library": tuple(facts["library"])})
