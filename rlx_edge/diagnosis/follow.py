"""What happens in the device's memory: run again, step by step, and look at what should not change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.cgen.plan import Plan
from rlx_edge.device.causes import Cause
from rlx_edge.device.compare import Tally
from rlx_edge.device.link import Link
from rlx_edge.device.link_errors import RefusedError
from rlx_edge.device.protocol import LayerInfo, ModelInfo, Status, TensorInfo
from rlx_edge.device.scope import LAYERS, Scope, compared_tensors
from rlx_edge.ir import Node

Array = npt.NDArray[Any]

TELLING = 4
"""Distinct bytes that must have changed before they are looked for in an output: fewer are in many by chance."""


@dataclass(frozen=True)
class Run:
    """One sample on the device, as often as needed: `inputs` by the device's names, `expected` tensors by engine."""

    link: Link
    model: ModelInfo
    plan: Plan
    layers: tuple[LayerInfo, ...]
    inputs: Mapping[str, Array]
    expected: Mapping[str, Mapping[str, Array]]

    def first_parted(self) -> tuple[TensorInfo, Array] | None:
        """The first tensor that differs, in the order of the steps; None when none does this time."""
        tally = Tally()
        for tensor, got in self._tensors(LAYERS):
            if tally.compare(self.expected, 0, tensor, got) is not None:
                return tensor, got
        return None

    def again(self, tensor: TensorInfo) -> Array:
        """The tensor of another run."""
        return next(got for found, got in self._tensors(Scope(only=tensor.name)) if found == tensor)

    def _tensors(self, scope: Scope) -> Iterator[tuple[TensorInfo, Array]]:
        self.link.write_inputs(self.model, self.inputs)
        return compared_tensors(self.link, self.model, self.layers, scope)

    def before(self, step: int) -> None:
        """Runs up to a step, which is then the next."""
        self.link.write_inputs(self.model, self.inputs)
        for earlier in range(step):
            self.link.step(self.model, earlier)


def repeats(run: Run, tensor: TensorInfo, got: Array) -> Cause | None:
    """Whether another run gives other bytes."""
    again = run.again(tensor)
    differing = len(_changed(again, got))
    if not differing:
        return None
    return Cause("not repeatable", f"a second run on the same input gives {differing:,} other bytes in this tensor")


def stack(run: Run, last: int) -> Cause | None:
    """Whether one of the steps up to `last` needs all of the stack that there is."""
    run.link.write_inputs(run.model, run.inputs)
    for step in range(last + 1):
        try:
            result = run.link.step(run.model, step, measure_stack=True)
        except RefusedError as refusal:
            if refusal.status is not Status.UNSUPPORTED:
                raise
            return None  # firmware that cannot measure it
        if not result.stack_left:
            deep = f"{result.stack_bytes:,} bytes below where the step began"
            return Cause("stack overrun", f"step {step} wrote to the last word of the stack, {deep}")
    return None


def operands_of(run: Run, node: Node) -> list[tuple[TensorInfo, Array]]:
    """The computed operands of a node that are whole tensors, with the values that they should have."""
    by_node = {tensor.node: index for index, tensor in enumerate(run.plan.tensors)}
    tensors = [run.model.tensors[by_node[i]] for i in node.inputs if i in by_node]
    engine = next(iter(run.expected.values()))
    return [(tensor, engine[tensor.name]) for tensor in tensors if tensor.name in engine]


def memory(run: Run, node: Node, step: int) -> Cause | None:
    """Whether an operand that was right when it was completed is not right any more when the step reads it."""
    run.before(step)
    for tensor, want in operands_of(run, node):
        changed = _changed(run.link.read_tensor(run.model, tensor, as_it_is=True), want)
        if len(changed):
            return _who_wrote(run, tensor, want, changed, step)
    return None


def _bytes(values: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)


def _changed(got: Array, want: Array) -> Array:
    """int [changed bytes]: where they are."""
    return np.nonzero(_bytes(got) != _bytes(want))[0]


def _who_wrote(run: Run, tensor: TensorInfo, want: Array, changed: Array, reader: int) -> Cause:
    """Finds the step after which the tensor is no longer right."""
    where = f"bytes {int(changed[0])} to {int(changed[-1])} of {tensor.name!r}, which step {reader} reads,"
    first = 0 if tensor.step is None else tensor.step + 1
    run.before(first)
    for step in range(first, reader):
        run.link.step(run.model, step)
        found = run.link.read_tensor(run.model, tensor, as_it_is=True)
        changed = _changed(found, want)
        if len(changed):
            by = f"{where} are overwritten in step {step} ({run.layers[step].name})"
            if not _lies_over(_bytes(found), changed, _output_of(run, step)):
                return Cause("memory corruption", f"{by}, with bytes that are not its output")
            if len(np.unique(_bytes(found)[changed])) < TELLING:
                return Cause("memory corruption", f"{by}, in too few bytes to tell whether they are its output")
            return Cause("overlapping memory", f"{by}, with its output: it lies in the same place")
    return Cause("memory corruption", f"{where} change while no step runs")


def _output_of(run: Run, step: int) -> Array:
    """The bytes of the tensor that a step completes, as they should be."""
    engine = next(iter(run.expected.values()))
    made = [tensor.name for tensor in run.model.tensors if tensor.step == step and not tensor.rows]
    return _bytes(engine[made[0]])


def _lies_over(found: Array, changed: Array, output: Array) -> bool:
    """Whether another tensor lies over this one: at some distance all bytes that both have are its own, and all that
    changed here are among them."""
    for start in range(1 - len(output), len(found)):
        first, end = max(0, start), min(len(found), start + len(output))
        if (
            first <= changed[0]
            and changed[-1] < end
            and np.array_equal(found[first:end], output[first - start : end - start])
        ):
            return True
    return False
