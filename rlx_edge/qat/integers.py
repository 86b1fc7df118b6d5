"""From a trained module back to the integers of an int8 model."""

from __future__ import annotations

from rlx_edge.qat.module import QatModule
from rlx_edge.quant.assign import Assignment


def trained(module: QatModule) -> Assignment:
    """The module's assignment with the integers that its layers stand for."""
    return module.assignment.with_layers({int(id): layer.codes() for id, layer in module.layers.items()})
