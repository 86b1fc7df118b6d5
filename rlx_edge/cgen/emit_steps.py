"""Steps, their parameters and their constants as pieces of C text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from rlx_edge.cgen import text
from rlx_edge.cgen.emit_stages import layers_of, nodes_of, row_order, stage_lines
from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call, Constant, Line, Plan, Step, View
from rlx_edge.ir import Array

LINE_WIDTH = 112
"""Of a parameter struct's lines, before they are indented."""


@dataclass(frozen=True, eq=False)
class WeightText:
    """A constant in the object that holds them all."""

    name: str
    ctype: str
    values: Array
    note: str

    @property
    def shape(self) -> str:
        return str(list(self.values.shape))

    @property
    def table(self) -> str:
        return text.number_table(self.values)


@dataclass(frozen=True)
class ParamsText:
    """A parameter struct: its type, its name and its initializer's lines."""

    struct: str
    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class StageText:
    """A stage: which layer makes its next row, as a table of so many rows, and what each layer makes."""

    order: str
    rows: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class StepText:
    """A step: its function, what the comment above it says, parameters and calls."""

    function: str
    name: str
    op: str
    macs: int
    lines: tuple[str, ...]
    params: tuple[ParamsText, ...]
    calls: tuple[str, ...]
    stage: StageText | None = None
    """Of a stage; each of `calls` is then for the row y."""


def collect_weights(plan: Plan) -> tuple[tuple[WeightText, ...], Mapping[int, str]]:
    """All constants, int32 first so that nothing needs padding, and the C name of each by `id(constant)`."""
    found: list[WeightText] = []
    names: dict[int, str] = {}
    for index, step in enumerate(plan.steps):
        node = plan.graph.nodes[step.node]
        taken: dict[str, int] = {}
        for constant in _constants(step):
            if id(constant) in names:
                continue
            taken[constant.name] = taken.get(constant.name, -1) + 1
            suffix = f"_{taken[constant.name]}" if taken[constant.name] else ""
            names[id(constant)] = f"s{index:02}_{constant.name}{suffix}"
            ctype = "int32_t" if constant.values.dtype == np.int32 else "int8_t"
            found.append(WeightText(names[id(constant)], ctype, constant.values, f" of {node.name}"))
    if not found:
        found.append(WeightText("none", "int8_t", np.zeros(1, np.int8), ": the model has no constants"))
    return tuple(sorted(found, key=lambda c: c.ctype != "int32_t")), names


def _constants(step: Step) -> list[Constant]:
    found = []
    for call in step.calls:
        found += [view.base for view in call.inputs if isinstance(view.base, Constant)]
        found += [call.constants[pointer] for pointer in call.kernel.pointers]
    return found


def step_texts(plan: Plan, names: Mapping[int, str]) -> tuple[StepText, ...]:
    offsets = plan.offsets
    return tuple(_step_text(plan, i, step, names, offsets) for i, step in enumerate(plan.steps))


def _step_text(plan: Plan, index: int, step: Step, names: Mapping[int, str], offsets: Mapping[int, int]) -> StepText:
    node = plan.graph.nodes[step.node]
    params: dict[tuple[int, int], ParamsText] = {}
    calls = []
    for call in layers_of(step) if step.lines else step.calls:
        key = (id(call.params), id(call.constants))
        if key not in params:
            suffix = f"_{len(params)}" if params else ""
            params[key] = ParamsText(call.kernel.struct, f"p{index:02}{suffix}", _fields(call, names))
        rows = "y, y + 1" if step.lines else f"{call.first_row}, {call.rows}"
        calls.append(_call_text(call, params[key].name, names, offsets, plan.scratch_offsets.get(index, 0), rows))
    macs = plan.graph.macs(node)
    if step.lines:
        macs = sum(plan.graph.macs(plan.graph.nodes[i]) for i in nodes_of(plan.graph, step))
    return StepText(
        f"step_{index:02}",
        node.name,
        "Stage" if step.lines else node.op.kind_name,
        macs,
        tuple(_step_lines(plan, step, macs, offsets)),
        tuple(params.values()),
        tuple(calls),
        _stage_text(plan, step) if step.lines else None,
    )


def _stage_text(plan: Plan, step: Step) -> StageText:
    places = {tensor.node: index for index, tensor in enumerate(plan.all_tensors)}
    order = row_order(step)
    lines = []
    for index, layer in enumerate(layers_of(step)):
        node = layer.output.base
        assert isinstance(node, int)
        line = step.lines.get(node, Line(0, layer.output.pitch, int(np.count_nonzero(order == index))))
        tensor = places.get(node, "RLX_NO_TENSOR")
        lines.append(f"{{{tensor}, {line.of}, {line.rows}, {line.pitch}}}")
    return StageText(text.number_table(order), len(order), tuple(lines))


def _step_lines(plan: Plan, step: Step, macs: int, offsets: Mapping[int, int]) -> list[str]:
    """What the comment above a step says."""
    graph, node = plan.graph, plan.graph.nodes[step.node]
    lines = []
    if step.lines:
        lines += [*stage_lines(graph, step)]
    else:
        lines += [f"{operand.name}: {operand.type}" for operand in graph.operands(node) if operand.id in offsets]
    lines.append(f"-> {node.name}: {node.type}")
    lines.append(f"{macs:,} MACs" if macs else f"{node.type.elements:,} elements")
    lines += dict.fromkeys(call.proof for call in step.calls if call.proof)
    if node.sources and node.sources != (node.name,):
        lines.append(f"from {', '.join(node.sources)}")
    if node.channels is not None:
        lines.append(str(node.channels))
    return lines


def _fields(call: Call, names: Mapping[int, str]) -> tuple[str, ...]:
    kernel: Kernel = call.kernel
    lines = [f".{pointer} = W.{names[id(call.constants[pointer])]}," for pointer in kernel.pointers]
    fields = [f".{name} = {call.params[name]}," for name in kernel.fields]
    return (*lines, *_filled(fields))


def _filled(fields: Iterable[str]) -> list[str]:
    """Fields in lines that are not too long."""
    lines: list[str] = []
    for field in fields:
        if lines and len(lines[-1]) + 1 + len(field) <= LINE_WIDTH:
            lines[-1] += f" {field}"
        else:
            lines.append(field)
    return lines


def _call_text(
    call: Call, params: str, names: Mapping[int, str], offsets: Mapping[int, int], scratch_offset: int, rows: str
) -> str:
    views = ", ".join(_view_text(view, names, offsets) for view in (*call.inputs, call.output))
    scratch = f", arena + {scratch_offset}" if call.kernel.scratch else ""
    return f"{call.kernel.name}(&{params}, {views}{scratch}, {rows});"


def _view_text(view: View, names: Mapping[int, str], offsets: Mapping[int, int]) -> str:
    if isinstance(view.base, Constant):
        offset = f" + {view.offset}" if view.offset else ""
        return f"in_flash(W.{names[id(view.base)]}{offset}, {view.pitch})"
    place = f"arena, {offsets[view.base] + view.offset}, {view.pitch}"
    return f"ring({place}, {view.ring})" if view.ring else f"at({place})"
