"""A graph as text, one line a node, for people and for golden tests."""

from __future__ import annotations

from rlx_edge.ir.graph import Graph


def to_text(graph: Graph) -> str:
    """One line a node: `%3 conv1 = q_conv2d([3, 3])(%0, %1, %2) : i8[1, 8, 8, 4] s=0.05 z=-128  # from a, b`."""
    lines = [f"graph {graph.name!r}"]
    for node in graph.nodes:
        operands = ", ".join(f"%{i}" for i in node.inputs)
        call = node.op.display() + (f"({operands})" if node.inputs else "")
        sources = f"  # from {', '.join(node.sources)}" if node.sources and node.sources != (node.name,) else ""
        channels = f"  # {node.channels}" if node.channels is not None else ""
        lines.append(f"  %{node.id} {node.name} = {call} : {node.type}{sources}{channels}")
    lines.append(f"  return {', '.join(f'%{i}' for i in graph.outputs)}")
    return "\n".join(lines) + "\n"
