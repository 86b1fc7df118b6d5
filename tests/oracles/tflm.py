"""The `tflite-micro` wheel, in this process: the meaning of the rule `tflm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.generic]

MIN_ARENA_BYTES = 1 << 20


class Tflm:
    """One model, loaded once and run as often as wanted."""

    def __init__(self, model: bytes) -> None:
        runtime = pytest.importorskip("tflite_micro", reason="no tflite-micro: pip install 'rlx-edge[oracles]'").runtime
        arena = max(20 * len(model), MIN_ARENA_BYTES)
        self._interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)

    def run(self, inputs: Sequence[Array], outputs: int = 1) -> list[Array]:
        """The first `outputs` outputs for inputs in the file's order, shapes and dtypes."""
        for index, value in enumerate(inputs):
            self._interpreter.set_input(np.ascontiguousarray(value), index)
        self._interpreter.invoke()
        return [np.array(self._interpreter.get_output(index)) for index in range(outputs)]
