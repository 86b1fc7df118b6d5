"""Neural networks on microcontrollers, proven bit for bit.

import rlx_edge as rlx

graph = rlx.load("digits.onnx")
data = rlx.load_data("calibration.npz", graph)
int8 = rlx.quantize(graph, rlx.calibrate(graph, data))
rlx.build({"digits": int8}, "mps2-an386", "firmware")
print(rlx.parity("firmware", rlx.load_data("test.npz", int8, samples="0:8")).exact)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlx_edge.api import (
        EdgeError,
        Recipe,
        apply_recipe,
        build,
        calibrate,
        check_model,
        connect,
        effort,
        evaluate,
        explain,
        flash,
        generate,
        get_target,
        load,
        load_board,
        load_data,
        open_build,
        parity,
        profile,
        quality,
        quantize,
        read_explanation,
        run,
        save,
        with_explanation,
        with_rule,
    )

__all__ = [
    "EdgeError",
    "Recipe",
    "apply_recipe",
    "build",
    "calibrate",
    "check_model",
    "connect",
    "effort",
    "evaluate",
    "explain",
    "flash",
    "generate",
    "get_target",
    "load",
    "load_board",
    "load_data",
    "open_build",
    "parity",
    "profile",
    "quality",
    "quantize",
    "read_explanation",
    "run",
    "save",
    "with_explanation",
    "with_rule",
]


def __getattr__(name: str) -> Any:
    """Import the API when it is first used, so that `import rlx_edge.ir` does not load every stage."""
    if name in __all__:
        return getattr(import_module("rlx_edge.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
