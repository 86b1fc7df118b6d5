"""What a device gave during a comparison: a hash of every tensor, and the outputs as they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rlx_edge.certificate.facts import ComparedTensor
from rlx_edge.device.protocol import TensorInfo

Array = npt.NDArray[Any]


@dataclass
class Record:
    """Filled by `run_parity(..., observe=record.add)`, sample after sample. Keys are names as the device has them."""

    outputs: dict[str, list[Array]] = field(default_factory=dict)
    _sums: dict[str, Any] = field(default_factory=dict)
    _bytes: dict[str, int] = field(default_factory=dict)

    def add(self, tensor: TensorInfo, got: Array) -> None:
        self.add_bytes(tensor.name, got.tobytes())
        if tensor.output is not None:
            self.outputs.setdefault(tensor.name, []).append(got)

    def add_bytes(self, name: str, raw: bytes) -> None:
        self._sums.setdefault(name, hashlib.sha256()).update(raw)
        self._bytes[name] = self._bytes.get(name, 0) + len(raw)

    @property
    def tensors(self) -> tuple[ComparedTensor, ...]:
        return tuple(ComparedTensor(name, self._bytes[name], made.hexdigest()) for name, made in self._sums.items())

    def stacked_outputs(self) -> dict[str, Array]:
        """Each output [samples, *shape]."""
        return {name: np.stack(values) for name, values in self.outputs.items()}
