"""What a model is. Imports nothing else of the package but its errors."""

from __future__ import annotations

from rlx_edge.ir.batch import with_batch
from rlx_edge.ir.channels import Channels
from rlx_edge.ir.dtype import Array, DType
from rlx_edge.ir.equal import same_graph
from rlx_edge.ir.frozen import Frozen, FrozenAdd, FrozenExp, FrozenScale, FrozenSoftmax, FrozenTable, Requant
from rlx_edge.ir.graph import Graph, GraphBuilder, Node
from rlx_edge.ir.parse import from_text
from rlx_edge.ir.symbolic import batch_shapes
from rlx_edge.ir.tensor import QuantParams, Shape, TensorType
from rlx_edge.ir.text import to_text
from rlx_edge.ir.verify import find_problems, real_multipliers, verify

__all__ = [
    "Array",
    "Channels",
    "DType",
    "Frozen",
    "FrozenAdd",
    "FrozenExp",
    "FrozenScale",
    "FrozenSoftmax",
    "FrozenTable",
    "Graph",
    "GraphBuilder",
    "Node",
    "QuantParams",
    "Requant",
    "Shape",
    "TensorType",
    "batch_shapes",
    "find_problems",
    "from_text",
    "real_multipliers",
    "same_graph",
    "to_text",
    "verify",
    "with_batch",
]
