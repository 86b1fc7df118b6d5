"""The device's tensors against those of other engines, byte by byte: counts, and the first element that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.device.protocol import TensorInfo
from rlx_edge.errors import DataError

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]
Engine = Callable[[Sample], Mapping[str, Array]]
"""From one sample's inputs to its tensors, both by the device's names."""


@dataclass(frozen=True)
class Difference:
    """The first element in which the device differs: `index` into the tensor of one sample."""

    engine: str
    sample: int
    tensor: str
    index: tuple[int, ...]
    expected: int | float
    got: int | float

    def __str__(self) -> str:
        place = f"{self.tensor}[{', '.join(map(str, self.index))}]"
        return f"sample {self.sample}: {place} is {self.got} on the device, {self.expected} by {self.engine}"


@dataclass
class Tally:
    """Counts while the samples pass: bytes compared and differing by engine and tensor."""

    counts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    first: Difference | None = None
    skipped: dict[str, None] = field(default_factory=dict)

    def compare(
        self, expected: Mapping[str, Mapping[str, Array]], sample: int, tensor: TensorInfo, got: Array
    ) -> Difference | None:
        """Compares one tensor with all engines'; returns its first difference. Of a tensor that was read in part the
        first bytes are compared. Raises DataError when an engine gives it in another size."""
        known, found = False, None
        for engine, tensors in expected.items():
            want = expected_of(tensors, tensor)
            if want is None:
                continue
            known = True
            unequal = _unequal(engine, tensor, want, got)
            differing = int(np.count_nonzero(unequal))
            count = self.counts.setdefault((engine, tensor.name), [0, 0])
            count[0] += got.nbytes
            count[1] += differing
            if differing and found is None:
                element = int(np.argmax(unequal)) // got.dtype.itemsize
                found = _difference(engine, sample, tensor, np.ascontiguousarray(want), got, element)
        if not known:
            self.skipped[tensor.name] = None
        self.first = self.first or found
        return found


def expected_of(tensors: Mapping[str, Array], tensor: TensorInfo) -> Array | None:
    """An engine's tensor of that name; the device may have cut a long name."""
    if not tensor.name_cut:
        return tensors.get(tensor.name)
    return next((data for name, data in tensors.items() if tensor.matches(name)), None)


def _unequal(engine: str, tensor: TensorInfo, want: Array, got: Array) -> npt.NDArray[np.bool_]:
    """bool [bytes that were read]: which differ."""
    if want.nbytes != tensor.bytes or want.dtype.itemsize != got.dtype.itemsize:
        raise DataError(
            f"{engine} gives {tensor.name!r} as {want.dtype} of shape {want.shape}, "
            f"the device as {got.dtype} of shape {tensor.shape}"
        )
    wanted = np.frombuffer(np.ascontiguousarray(want).tobytes(), np.uint8)
    return np.asarray(wanted[: got.nbytes] != np.frombuffer(got.tobytes(), np.uint8))


def _difference(engine: str, sample: int, tensor: TensorInfo, want: Array, got: Array, element: int) -> Difference:
    index = tuple(int(part) for part in np.unravel_index(element, want.shape)) if want.ndim else ()
    return Difference(
        engine=engine,
        sample=sample,
        tensor=tensor.name,
        index=index,
        expected=want.reshape(-1)[element].item(),
        got=got.reshape(-1)[element].item(),
    )
