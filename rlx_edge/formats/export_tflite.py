"""Export of int8 graphs as `.tflite` files, which compute the same bits in TFLite's own runtimes."""

from __future__ import annotations

from pathlib import Path

from rlx_edge.errors import UnsupportedError
from rlx_edge.files import replacing
from rlx_edge.formats.export_tflite_context import Exporter
from rlx_edge.formats.export_tflite_file import write_model
from rlx_edge.formats.export_tflite_moves import MOVES
from rlx_edge.formats.export_tflite_ops import EXPORTERS
from rlx_edge.ir import DType, Graph, Node, Requant, verify
from rlx_edge.ir.ops import Constant, Input, Param, Quantize

RULES = (Requant.TFLM, Requant.TFLITE_REF)
"""The rounding rules that a `.tflite` file means: which of the two is the runtime's choice."""

DESCRIPTION = "Exported by rlx-edge."


def tflite_bytes(graph: Graph) -> bytes:
    """The bytes that `export` makes."""
    return export(graph)[0]


def export(graph: Graph) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a `.tflite` file that computes what this int8 NHWC graph computes; equal graphs give equal bytes.
    And a line for each thing that the file says in another way than the graph, which a user may want to know.

    Inputs and outputs keep their order, names, shapes and parameters, and tensors have their nodes' names. Bounds
    become a fused activation where TFLite has it, else MAXIMUM and MINIMUM; other paddings than SAME and VALID become
    a PAD; a function that TFLite has no int8 kernel for becomes a look-up in its table. Weights of 4 and 2 bits are
    INT4 where TFLite's kernels take that.

    Raises UnsupportedError listing every node that TFLite's int8 kernels do not compute exactly, and ModelError for a
    graph that is not well formed.
    """
    verify(graph)
    ex = Exporter(graph)
    problems: list[str] = []
    needed = _needed(graph)
    exported: set[int] = set()
    for node in graph.nodes:
        if node.id not in needed or not exported.issuperset(node.inputs):
            continue  # An operand that has no form has been told already.
        try:
            _export(ex, node)
            exported.add(node.id)
        except UnsupportedError as error:
            problems.append(f"{node}: {error}")
    if problems:
        count = f"{len(problems)} problem" + ("s" if len(problems) > 1 else "")
        raise UnsupportedError(f"{graph.name!r} cannot be exported to .tflite, {count}:", problems)
    inputs, outputs = (list(map(ex.tensor, nodes)) for nodes in (graph.inputs, graph.output_nodes))
    return write_model(ex.tensors, ex.operators, inputs, outputs, description=DESCRIPTION), tuple(ex.notes)


def save_tflite(graph: Graph, path: Path) -> tuple[str, ...]:
    """Write what `export` makes, whole or not at all; the notes. Raises EdgeError too for a path that cannot be
    written."""
    data, notes = export(graph)
    with replacing(Path(path)) as file:
        file.write(data)
    return notes


def _needed(graph: Graph) -> set[int]:
    """The inputs, and the nodes that an output follows from."""
    found: set[int] = {*graph.outputs, *(node.id for node in graph.inputs)}
    for node in reversed(graph.nodes):
        if node.id in found:
            found.update(node.inputs)
    return found


def _export(ex: Exporter, node: Node) -> None:
    """Append what computes a node. A Param becomes a tensor when an operator reads it, in the operator's own form."""
    if isinstance(node.op, Param | Constant):
        if node.id in ex.graph.outputs:
            raise UnsupportedError("an output that is a constant")
        return
    ex.tensor(node)
    if isinstance(node.op, Input):
        return
    first = ex.graph.operand_types(node)[0]
    if first.dtype is not DType.I8 and not (first.dtype.bits >= 8 and isinstance(node.op, (Quantize, *MOVES))):
        raise UnsupportedError(f"an operand of {first.dtype.value}; int8 graphs are exported: quantize the model first")
    export = EXPORTERS.get(type(node.op))
    if export is None:
        raise UnsupportedError("no int8 operator of TFLite computes it")
    rule: Requant | None = getattr(node.op, "requant", None)
    if rule is not None and rule not in RULES:
        raise UnsupportedError(f"the rounding rule {rule.value!r}, which .tflite has not: convert with --requant tflm")
    if any(tensor.quant is not None and tensor.quant.axis is not None for tensor in (first, node.type)):
        raise UnsupportedError("an activation with one scale per channel")
    export(ex, node)
