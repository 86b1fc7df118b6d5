"""tflite-runtime's reference kernels (BUILTIN_REF), in a process of their own: the meaning of the rule `tflite_ref`.

The wheel needs an older Python and numpy than the project, so it lives in `.venv-oracle` (`make setup` makes it), or
wherever RLX_EDGE_ORACLE_PYTHON points.
"""

from __future__ import annotations

import io
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

_ROOT = Path(__file__).resolve().parents[2]
_WORKER = Path(__file__).with_name("tflite_ref_worker.py")

SKIP_REASON = "no tflite-runtime: `make setup` puts it into .venv-oracle, or set RLX_EDGE_ORACLE_PYTHON"


def oracle_python() -> Path | None:
    """The Python that has tflite-runtime, or None."""
    configured = os.environ.get("RLX_EDGE_ORACLE_PYTHON")
    path = Path(configured) if configured else _ROOT / ".venv-oracle" / "bin" / "python"
    return path if path.exists() else None


class TfliteRuntime:
    """A worker process; a context manager. Raises RuntimeError with the runtime's own words when it refuses."""

    def __init__(self) -> None:
        python = oracle_python()
        if python is None:
            raise RuntimeError(SKIP_REASON)
        self._process = subprocess.Popen(
            [python, _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._model: bytes | None = None

    def __enter__(self) -> TfliteRuntime:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()

    def run(self, model: bytes, inputs: Sequence[Array]) -> list[Array]:
        """All outputs for inputs in the file's order; a model that was just used is not loaded again."""
        request: dict[str, Any] = {f"in{index}": value for index, value in enumerate(inputs)}
        if model != self._model:
            request["model"] = np.frombuffer(model, np.uint8)
        answer = self._ask(request)
        self._model = None if "error" in answer else model
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        return [answer[f"out{index}"] for index in range(len(answer))]

    def _ask(self, request: dict[str, Any]) -> dict[str, Array]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        packed = io.BytesIO()
        np.savez(packed, **request)
        self._process.stdin.write(struct.pack("<Q", len(packed.getvalue())) + packed.getvalue())
        self._process.stdin.flush()
        header = self._process.stdout.read(8)
        if len(header) < 8:
            raise RuntimeError(f"the tflite-runtime worker died with exit code {self._process.wait()}")
        with np.load(io.BytesIO(self._process.stdout.read(struct.unpack("<Q", header)[0]))) as answer:
            return dict(answer)
