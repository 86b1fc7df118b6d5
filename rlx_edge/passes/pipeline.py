"""The passes, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from rlx_edge.ir import Graph
from rlx_edge.ir.nested import change_bodies
from rlx_edge.passes.activation_rules import recognize_activations
from rlx_edge.passes.clamp_codes import clamp_codes
from rlx_edge.passes.clamp_early import clamp_early
from rlx_edge.passes.clean_shapes import clean_shapes
from rlx_edge.passes.crop_kernels import crop_kernels
from rlx_edge.passes.decompose import decompose
from rlx_edge.passes.expand_dequant import expand_dequant
from rlx_edge.passes.finite_masks import finite_masks
from rlx_edge.passes.fold_batchnorm import fold_batchnorm
from rlx_edge.passes.fold_code_pads import fold_code_pads
from rlx_edge.passes.fold_constant_channels import fold_constant_channels
from rlx_edge.passes.fold_constant_tensors import fold_constant_tensors
from rlx_edge.passes.fold_constants import fold_constants
from rlx_edge.passes.fold_pad import fold_pad
from rlx_edge.passes.fold_scale_ahead import fold_scale_ahead
from rlx_edge.passes.fuse_dequant import fuse_dequant
from rlx_edge.passes.merge_clamps import merge_clamps
from rlx_edge.passes.merge_tables import merge_tables
from rlx_edge.passes.norm_rules import recognize_norms
from rlx_edge.passes.pool_to_mean import pool_to_mean
from rlx_edge.passes.remove_dead import remove_dead
from rlx_edge.passes.remove_dead_channels import remove_dead_channels
from rlx_edge.passes.scale_to_depthwise import scale_to_depthwise
from rlx_edge.passes.share_common import share_common
from rlx_edge.passes.to_nhwc import to_nhwc
from rlx_edge.passes.unfuse import unfuse

Pass = Callable[[Graph], Graph]

PREPARE: tuple[Pass, ...] = (
    unfuse,
    expand_dequant,
    remove_dead,  # What no output needs must not hinder the passes that ask "is this the only user?".
    fold_constants,
    clean_shapes,
    finite_masks,
    share_common,  # Before patterns: "the same tensor" must be one node.
    merge_clamps,  # Before patterns and fold_pad, which look for clamps in one form.
    recognize_activations,
    recognize_norms,
    pool_to_mean,
    fold_batchnorm,
    fold_scale_ahead,
    fold_batchnorm,  # The bias that fold_scale_ahead made, with the layer's own.
    clamp_early,
    to_nhwc,
    decompose,  # In the layout that stays: what it makes may work in one alone.
    scale_to_depthwise,
    fold_pad,
    clean_shapes,
)
"""What a float graph goes through before calibration and quantization."""

CLEAN: tuple[Pass, ...] = (remove_dead, fold_constants, clean_shapes, share_common, fold_pad)
"""What any graph may go through: every output keeps its bits, on int8 too."""

LEAN: tuple[Pass, ...] = (
    clamp_codes,  # Before merge_tables: a clamp within a convolution costs less than a look-up.
    fold_code_pads,
    merge_tables,
    fold_constant_channels,
    fold_constant_tensors,
    crop_kernels,
    remove_dead_channels,  # It finds what the three before it left without a reader.
    *CLEAN,
)
"""What a frozen int8 graph in NHWC goes through before code is generated: every output keeps its bits."""

ROUNDS = 8
"""How often the passes run at most, should they never agree. Most models take two; the second changes nothing."""


def prepare(graph: Graph) -> Graph:
    """The float graph as it is calibrated and quantized: folded, in NHWC, without needless ops.

    The same function with the same inputs and outputs; running it again changes nothing. Every stage of quantization
    asks for it, so the answer is kept as long as the graph lives.
    """
    if graph not in _prepared:
        made = _until_stable(PREPARE, graph)
        _prepared[graph] = None if made is graph else made  # A reference to its own key would keep it for ever.
    return _prepared[graph] or graph


_prepared: WeakKeyDictionary[Graph, Graph | None] = WeakKeyDictionary()


def arranged(graph: Graph) -> Graph:
    """An int8 graph with images in NHWC, of kinds that targets have; each output the same to the last bit."""
    return clean(decompose(fuse_dequant(to_nhwc(unfuse(graph)))))


def clean(graph: Graph) -> Graph:
    """The same graph with less to compute, each output the same to the last bit; for float and int8 graphs."""
    return _until_stable(CLEAN, graph)


def lean(graph: Graph) -> Graph:
    """The frozen int8 graph with what no output needs left out: each output the same to the last bit.

    Running it again changes nothing. `Node.channels` says which channels of the source's tensors are left.
    """
    return _until_stable(LEAN, graph)


def _until_stable(passes: tuple[Pass, ...], graph: Graph) -> Graph:
    """What one pass made may be what an earlier one looks for. A pass with nothing to do returns what it got.

    Nested graphs go through the same passes first: each keeps its inputs and outputs.
    """
    graph = change_bodies(graph, lambda body: _until_stable(passes, body))
    for _ in range(ROUNDS):
        before = graph
        for step in passes:
            graph = step(graph)
        if graph is before:
            break
    return graph
