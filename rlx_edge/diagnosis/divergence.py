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
        differing = _unequal(self.want, self.got)
        if not differing.any() and self.host is not None:
            differing = _unequal(self.host, self.got)
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(differing)), self.want.shape))


def _unequal(want: Array, got: Array) -> Array:
    """bool [elements that are there]: which have other bytes."""
    size = got.dtype.itemsize
    bytes_ = [np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8) for values in (want, got)]
    rows = [values[: got.size * size].reshape(got.size, size) for values in bytes_]
    return np.asarray((rows[0] != rows[1]).any(axis=1))
