"""The first tensor that parts, and all that is known of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlx_edge.ir import Array, Graph, Node


@dataclass(frozen=True, eq=False)
class Divergence:
    """A node of the lowered graph whose operands the device had right and whose value differs from an engine's.

    `operands`: values of all operands, constants included. `want`: the reference's value; `host`: host C's, None where
    it keeps none; `got`: the device's, of the same shape and dtype, or flat when only its first rows were made.
    """

    graph: Graph
    node: Node
    operands: tuple[Array, ...]
    want: Array
    host: Array | None
    got: Array

    @property
    def whole(self) -> bool:
        return self.got.shape == self.want.shape

    @property
    def element(self) -> tuple[int, ...]:
        """Where the first element lies that differs."""
        got = self.got.reshape(-1)
        flat = self.want.reshape(-1)[: got.size] != got
        if not flat.any() and self.host is not None:
            flat = self.host.reshape(-1)[: got.size] != got
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(flat)), self.want.shape))
