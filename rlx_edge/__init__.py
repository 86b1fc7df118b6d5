"""Neural networks on microcontrollers, proven bit for bit.

import rlx_edge as rlx

graph = rlx.load("digits.onnx")
data = rlx.load_data("calibration.npz", graph)
int8 = rlx.quantize(graph, rlx.calibrate(graph, data))
rlx.build({"digits": int8}, rlx.load_board("mps2-an386"), Path("build"))
print(rlx.parity(Path("build"), rlx.load_data("test.npz", int8)))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_edge.api import (
        build,
        calibrate,
        connect,
        generate,
        load,
        load_board,
        load_data,
        open_build,
        parity,
        profile,
        quality,
        quantize,
        run,
    )

__all__ = [
    "build",
    "calibrate",
    "connect",
    "generate",
    "load",
    "load_board",
    "load_data",
    "open_build",
    "parity",
    "profile",
    "quality",
    "quantize",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import the API when it is first used, so that `import rlx_edge.ir` does not load every stage."""
    if name in __all__:
        return getattr(import_module("rlx_edge.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
