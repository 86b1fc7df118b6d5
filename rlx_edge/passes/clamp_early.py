"""Move a Relu or Clamp before maximum pooling, reshapes and transposes, to the layer that can take it in.

`relu(max_pool(conv(x)))` is `max_pool(relu(conv(x)))`, to the last bit. As int8 the first needs an op more, and a scale
for the negative values of the convolution, which are thrown away.
"""

from __future__ import annotations

from rlx_edge.ir import Graph, GraphBuilder, Node
from rlx_edge.ir.ops import Activation, Binary, Clamp, Pool, ReduceOp, Reshape, Transpose
from rlx_edge.passes.merge_clamps import clamp_of
from rlx_edge.passes.rebuild import Ids, is_anchor, only_user, rebuild


def clamp_early(graph: Graph) -> Graph:
    """The same function with clamps beside the convolution, matrix multiply or sum before them."""
    paths = {node.id: path for node in graph.nodes if (path := _path_before(graph, node))}
    if not paths:
        return graph
    clamp_at = {path[-1].id: graph.nodes[i] for i, path in paths.items()}
    final = {path[0].id: graph.nodes[i] for i, path in paths.items()}
    inside = {node.id for path in paths.values() for node in path}

    def rule(graph: Graph, node: Node, builder: GraphBuilder, ids: Ids) -> int | None:
        if node.id in paths:
            return ids[node.inputs[0]]
        if node.id not in inside:
            return None
        x = ids[node.inputs[0]]
        if node.id in clamp_at:
            clamp = clamp_at[node.id]
            x = builder.add(clamp.op, [x], f"{clamp.name}.early")
        last = final.get(node.id)
        if last is not None:
            return builder.add(node.op, [x], last.name, sources=last.sources)
        return builder.add(node.op, [x], f"{node.name}.clamped")

    return rebuild(graph, rule)


def _path_before(graph: Graph, clamp: Node) -> list[Node]:
    """From a clamp back to a layer, the nodes in between that it can pass; empty where it stays."""
    if not isinstance(clamp.op, Activation | Clamp) or clamp_of(graph, clamp) is None:
        return []
    path: list[Node] = []
    reader, x = clamp, graph.nodes[clamp.inputs[0]]
    while _passes_clamps(x) and only_user(graph, x) is reader:
        path.append(x)
        reader, x = x, graph.nodes[x.inputs[0]]
    takes = (isinstance(x.op, Binary) or is_anchor(graph, x)) and only_user(graph, x) is reader
    return path if takes else []


def _passes_clamps(node: Node) -> bool:
    return isinstance(node.op, Reshape | Transpose) or (isinstance(node.op, Pool) and node.op.kind is ReduceOp.MAX)
