"""Graphs written by hand.

import numpy as np
from rlx_edge import F32, Graph

g = Graph("net")
x = g.input("x", (1, 1, 8, 8), F32)
y = g.relu(g.conv(x, np.ones((4, 1, 3, 3)), stride=(2, 2)))
g.output(y.mean((2, 3)))
net = g.build()  # an rlx_edge.ir.Graph, as rlx_edge.load gives
"""

from __future__ import annotations

from rlx_edge.builder.graph import Graph
from rlx_edge.builder.value import Value

__all__ = ["Graph", "Value"]
