"""Results as tables for the terminal. Names from models are shown as plain text, never as markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rlx_edge.device.boards import Board
from rlx_edge.device.build import FirmwareSizes
from rlx_edge.device.connected import Connection, needs
from rlx_edge.device.device_text import printable
from rlx_edge.device.doctor import Check
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.graph import brief
from rlx_edge.ir.ops import Leaf
from rlx_edge.quant.quality import Quality
from rlx_edge.report.console import out

NARROWEST_NAME = 20
TINIEST_NAME = 8


def short(name: str) -> str:
    """A name that fits a column, as messages and figures have it."""
    return escape(printable(brief(name)))


def counted(count: int, noun: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    total: Sequence[object] = (),
    narrowest: int = NARROWEST_NAME,
) -> Table:
    """A table whose first column is text and whose other columns are figures, to the right.

    In a narrow terminal the first column is broken beyond its first `narrowest` characters, others at spaces; figures
    never. Where even that is too wide, there are no lines between columns.
    """
    made = Table(title=printable(title), title_justify="left", show_footer=bool(total), header_style="bold")
    cells = [tuple(map(_cell, row)) for row in rows]
    last = tuple(map(_cell, total)) or ("",) * len(columns)
    least = 0
    for index, column in enumerate(columns):
        texts = [column, last[index], *(row[index] for row in cells)]
        width = max(Text.from_markup(text, emoji=False).cell_len for text in texts)
        if index == 0:
            least += min(width, narrowest)
            made.add_column(column, last[index], min_width=min(width, narrowest), overflow="fold")
        else:
            solid = not any(" " in text for text in texts[1:])
            least += width if solid else 8
            made.add_column(column, last[index], justify="right", overflow="fold", no_wrap=solid)
    for row in cells:
        made.add_row(*row)
    if least + 3 * len(columns) + 1 > out.width:
        made.box, made.padding, made.pad_edge = None, (0, 1, 0, 0), False
        made.columns[0].min_width = min(TINIEST_NAME, made.columns[0].min_width or 0)
    return made


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


Shapes = Mapping[int, Sequence[object]]
"""By node id, shapes that are shown instead of a node's own: those with N for the batch (`ir.batch_shapes`)."""


def type_text(node: Node, shapes: Shapes | None) -> str:
    return f"{node.type.dtype.value}[{', '.join(map(str, (shapes or {}).get(node.id, node.type.shape)))}]"


def layers_table(graph: Graph, shapes: Shapes | None = None) -> Table:
    """Ops, shapes, MACs and parameters of a graph."""
    rows = [
        (
            short(node.name),
            node.op.kind_name,
            type_text(node, shapes),
            graph.macs(node),
            parameters_of(graph, node.inputs),
        )
        for node in graph.nodes
        if not isinstance(node.op, Leaf)
    ]
    total = ("total", "", "", sum(int(r[3]) for r in rows), sum(int(r[4]) for r in rows))
    return table(escape(graph.name), ("layer", "op", "output", "MACs", "parameters"), rows, total)


def tensor_facts(node: Node) -> dict[str, Any]:
    """Name, dtype and shape; scale and zero point, or None where the tensor has not one of each."""
    quant = node.type.quant
    one = quant if quant is not None and len(quant.scales) == 1 else None
    return {
        "name": node.name,
        "dtype": node.type.dtype.value,
        "shape": list(node.type.shape),
        "scale": one.scale if one else None,
        "zero_point": one.zero_point if one else None,
    }


def ends_table(graph: Graph, shapes: Shapes | None = None) -> Table:
    """Inputs and outputs of a graph: what goes in and comes out, and what its integers mean."""
    ends = [("input", node) for node in graph.inputs] + [("output", node) for node in graph.output_nodes]
    rows = [(short(node.name), kind, type_text(node, shapes), *_meaning(tensor_facts(node))) for kind, node in ends]
    return table("inputs and outputs", ("tensor", "kind", "type", "scale", "zero point"), rows)


def _meaning(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Scale and zero point."""
    return ("", "") if facts["scale"] is None else (f"{facts['scale']:.6g}", str(facts["zero_point"]))


def parameters_of(graph: Graph, operands: Sequence[int]) -> int:
    """Elements of the constant operands."""
    return sum(graph.nodes[i].type.elements for i in operands if graph.constant(graph.nodes[i]) is not None)


def sizes_text(sizes: FirmwareSizes) -> str:
    return (
        f"flash {sizes.flash_bytes:,} bytes, RAM {sizes.ram_bytes:,} bytes, stack {sizes.stack_bytes:,} bytes reserved "
        f"(the link adds {sizes.link_flash_bytes:,} of flash and {sizes.link_ram_bytes:,} of RAM)"
    )


def quality_table(quality: Quality) -> Table:
    rows = [(short(t.name), t.sqnr_db, f"{t.scale:.6g}", t.zero_point) for t in quality.tensors]
    return table("int8 beside float, per tensor", ("tensor", "SQNR dB", "scale", "zero point"), rows)


def quality_text(quality: Quality) -> str:
    agreement = "" if quality.agreement is None else f", agreement {quality.agreement:.1%}"
    return f"output SQNR {quality.output_sqnr_db:.1f} dB{agreement} over {counted(quality.samples, 'sample')}"


def board_state(board: Board) -> str:
    """Where a board runs, and whether this project ever ran on a real one."""
    where = ["emulator"] if board.emulation else []
    if board.hardware:
        where.append("board (tested)" if board.hardware_tested else "board (untested)")
    return ", ".join(where)


def boards_table(boards: Sequence[Board], plugged: Mapping[str, Sequence[Connection]]) -> Table:
    """What there is, how it is flashed, and what is plugged in; `?` where a USB id is that of several boards."""

    def connected(board: Board) -> str:
        return ", ".join(f"{escape(one.where)}{'' if one.sure else '?'}" for one in plugged[board.name])

    rows = [
        (
            *(b.name, b.chip.cpu, b.placement.code.bytes, b.placement.data.bytes, board_state(b)),
            *(_flashed_by(b), connected(b)),
        )
        for b in boards
    ]
    return table("boards", ("board", "core", "flash", "RAM", "runs in", "flashed by", "connected"), rows)


def _flashed_by(board: Board) -> str:
    missing = [need.program for need in needs(board) if need.purpose == "flash" and not need.found]
    method = board.flash.method if board.flash is not None else "nothing"
    return f"{method} (missing)" if missing else method


def board_facts(board: Board, plugged: Sequence[Connection]) -> dict[str, object]:
    """A board for machines; flash and RAM in bytes, `wiring` as in its file."""
    return {
        "name": board.name,
        "title": board.title,
        "cpu": board.chip.cpu,
        "flash_bytes": board.placement.code.bytes,
        "ram_bytes": board.placement.data.bytes,
        "emulated": board.emulation is not None,
        "hardware": board.hardware,
        "hardware_tested": board.hardware_tested,
        "wiring": board.wiring,
        "needs": [asdict(need) for need in needs(board)],
        "flash_method": board.flash.method if board.flash is not None else None,
        "flash_methods": list(board.flash.methods) if board.flash is not None else [],
        "usb": list(board.usb),
        "connected": [asdict(found) for found in plugged],
    }


def doctor_table(checks: Sequence[Check]) -> Table:
    rows = [(c.name, "ok" if c.ok else "missing", escape(c.detail), escape(c.how_to_fix)) for c in checks]
    made = Table(title="rlx-edge doctor", title_justify="left", header_style="bold")
    for index, column in enumerate(("check", "state", "found", "how to get it")):
        made.add_column(column, overflow="fold", no_wrap=index < 2)
    for row in rows:
        made.add_row(*row)
    return made
