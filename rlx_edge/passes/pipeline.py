"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from rlx_edge.ir import Graph
from rlx_edge.passes.clean_shapes import clean_shapes
from rlx_edge.passes.fold_batchnorm import fold_batchnorm
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.passes.scale_to_depthwise import scale_to_depthwise
from rlx_edge.passes.to_nhwc import to_nhwc

Pass = Callable[[Graph], Graph]

PREPARE: tuple[Pass, ...] = (
    remove_dead,  # What no output needs must not hinder the passes that ask "is this the only user?".
    clean_shapes,
    fold_batchnorm,
    to_nhwc,
    scale_to_depthwise,
    clean_shapes,
)
"""What a float graph goes through before calibration and quantization."""


def prepare(graph: Graph) -> Graph:
    """The float graph as it is calibrated and quantized: folded, in NHWC, without needless shape ops.

    The same function with the same inputs and outputs; running it again changes nothing.
    """
    for step in PREPARE:
        graph = step(graph)
    return graph
