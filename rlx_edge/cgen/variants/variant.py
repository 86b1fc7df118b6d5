"""What a variant is: one way to compute a node on some instruction set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlx_edge.cgen.kernels import Kernel
from rlx_edge.cgen.plan import Call
from rlx_edge.cgen.target import Isa
from rlx_edge.ir import Graph, Node
from rlx_edge.ir.ops import Op


@dataclass(frozen=True)
class Variant:
    """`lower` gives the calls that compute a node, or one line that says why this variant cannot.

    It must have proved from the node's actual weights and parameters that the kernels give the right bits, whatever
    the input. `kernels`: all that its calls may use.
    """

    name: str
    isa: Isa
    op: type[Op]
    kernels: tuple[Kernel, ...]
    lower: Callable[[Graph, Node], tuple[Call, ...] | str]
