"""What a reshape does to a tensor that is held with its axes in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx_edge.ir import Shape

Perm = tuple[int, ...]


@dataclass(frozen=True)
class Regrouped:
    """To reshape `old` to `new` while both are held transposed: old = transpose(held, before), new likewise `after`."""

    before: Perm
    after: Perm


def regroup(old: Shape, new: Shape, perm: Perm) -> Regrouped:
    """How to reshape with the least moving, for a tensor held so that old = transpose(held, perm).

    A reshape joins and splits neighboring axes: such groups stay whole, and stand in the order in which they are held.
    `before` is `perm` itself where the groups are whole already.
    """
    groups = axis_groups(old, new)
    place = {axis: position for position, axis in enumerate(_held_order(perm))}
    keys, last = [], -1
    for axes, _ in groups:
        real = [place[axis] for axis in axes if old[axis] > 1]
        last = min(real) if real else last  # Axes of one element stay beside the group before them.
        keys.append(last)
    ranked = sorted(range(len(groups)), key=lambda i: (keys[i], i))
    order_before = [axis for i in ranked for axis in groups[i][0]]
    order_after = [axis for i in ranked for axis in groups[i][1]]
    return Regrouped(_perm_of(_batch_first(order_before, old)), _perm_of(_batch_first(order_after, new)))


def _batch_first(order: Sequence[int], shape: Shape) -> list[int]:
    """The order with the first axes of one element (the batch) where they were: moving them moves nothing."""
    count = next((axis for axis, size in enumerate(shape) if size > 1), len(shape))
    return [*range(count), *(axis for axis in order if axis >= count)]


def axis_groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of the two shapes that hold the same elements, in order."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = [i] if i < len(old) else [], [j] if j < len(new) else []
        left, right = old[i] if a else 1, new[j] if b else 1
        i, j = i + len(a), j + len(b)
        while left != right:
            if left < right:
                left, a, i = left * old[i], [*a, i], i + 1
            else:
                right, b, j = right * new[j], [*b, j], j + 1
        groups.append((a, b))
    return groups


def _held_order(perm: Perm) -> Sequence[int]:
    """For each axis of the held tensor, the old axis that it is."""
    return sorted(range(len(perm)), key=lambda axis: perm[axis])


def _perm_of(order: Sequence[int]) -> Perm:
    """The permutation of a tensor held with these axes, in this order."""
    return tuple(order.index(axis) for axis in range(len(order)))
